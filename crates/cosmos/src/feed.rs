//! One page of the feed: the range that was asked for and no other, from a raw ETag to a raw ETag.

use azure_data_cosmos::{
    diagnostics::DiagnosticsContext,
    feed::{ContinuationToken, FeedPage, FeedScope},
    models::ChangeFeedItem,
    options::{ChangeFeedMode, ChangeFeedOptions, ChangeFeedStartFrom, MaxItemCountHint},
};
use changefeed_core::{
    Change, ChangePage, Continuation, Epk, Error, ErrorKind, FeedRange, Lsn, Mode, PartitionKey, ReadChanges,
    ResourceId, Response, Result, StartFrom, Timestamp,
};
use futures_util::StreamExt as _;
use serde_json::Value;
use tracing::warn;

use crate::{
    change,
    container::CosmosContainer,
    error::{Call, cause_of, is_session_behind, status_of},
    failover::{Reader, Told, Verdict},
    key,
    options::Session,
    ranges::{page_size, range_id, scope, session_lsn},
    token,
};

const READING: &str = "read changes of";

/// The longest ETag that is sent: it goes into a header.
const MAX_ETAG_BYTES: usize = 4096;

type Page = FeedPage<ChangeFeedItem<Value>>;

/// A page, and what the response tells beside it.
pub(crate) struct Answer {
    pub(crate) answer: Response<ChangePage>,
    /// The newest LSN of the range, if the response has it.
    pub(crate) known: Option<u64>,
    /// Where each change belongs, if its key is known.
    pub(crate) places: Vec<Option<Epk>>,
    /// Whether the feed has nothing more. A page without changes may come before its end.
    pub(crate) is_end: bool,
}

/// What is read, as the SDK is asked for it.
#[derive(Clone, Copy)]
enum Keys<'a> {
    /// A physical range, or a part of one.
    Range(&'a FeedRange),
    /// One partition key by its name.
    One(&'a PartitionKey),
}

/// Where a read begins, in the words of the SDK.
struct Start {
    from: ChangeFeedStartFrom,
    /// The ETag to go on after.
    etag: Option<String>,
    token: Option<ContinuationToken>,
}

impl Keys<'_> {
    fn scope(self) -> Result<FeedScope> {
        match self {
            Self::Range(range) => scope(range),
            Self::One(key) => Ok(FeedScope::partition(key::to_sdk(key)?)),
        }
    }
}

impl CosmosContainer {
    /// Reads a page. The plan of the SDK, the page, its repetition after a merge or without the session, the check of the
    /// container and the read after a failover have one time limit together.
    pub(crate) async fn read_page(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        let reading = Box::pin(self.read_checked(request));
        self.together(Call::Feed, READING, &self.budgets.feed, reading).await
    }

    async fn read_checked(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        let size = page_size(request.max_items)?;
        let range = match &request.physical {
            None => request.range.clone(),
            Some(id) => self.range_of(id).await?.intersection(&request.range).ok_or_else(|| {
                let message = format!("range {} has no key in {}", id, request.range);
                Error::new(ErrorKind::BadRange, message)
            })?,
        };
        let asked = self.options.time().wall();
        let page = self.read_range(&request, &range, size).await?;
        let Some((position, verdict)) = self.judge(&request, &range, &page, asked) else { return Ok(page.answer) };
        match (verdict, request.mode) {
            (Verdict::Good | Verdict::Ahead, _) => Ok(page.answer),
            // All versions are not read from a time.
            (Verdict::Reread(_), Mode::AllVersions) => Err(self.beyond_end(&range, position, &page)),
            (Verdict::Reread(since), Mode::LatestVersion) => {
                let since = request.not_before.map_or(since, |moment| moment.max(since));
                warn!(
                    container = %self.identity.container_name, %range, position, newest_lsn = page.known.unwrap_or_default(),
                    since_unix_seconds = since.as_secs(),
                    "the position is ahead of the feed, as after a failover that lost writes: reading again what was \
                     written since it was last good"
                );
                let again = ReadChanges { start: StartFrom::Time(since), ..request };
                let charge = page.answer.request_charge;
                let page = self.read_range(&again, &range, size).await?;
                // Where it ends shows whether positions can be compared at all.
                self.judge(&again, &range, &page, asked);
                let total = page.answer.request_charge + charge;
                Ok(Response::new(page.answer.into_value(), total))
            }
        }
    }

    /// Reads the page of the range: as one request for it or, where the service refuses reads of a part, out of pages of
    /// the whole physical range.
    async fn read_range(&self, request: &ReadChanges, range: &FeedRange, size: MaxItemCountHint) -> Result<Answer> {
        let is_one_key = request.partition_key.is_some();
        let refused = self.parts.lock().refused_in(range, is_one_key);
        if let Some(whole) = refused {
            let read = self.read_part(request, range, whole.clone(), is_one_key).await;
            let is_stale = |error: &Error| error.kind() == ErrorKind::RangeGone || is_bad_request(error);
            if !read.as_ref().is_err_and(is_stale) {
                return read;
            }
            // It was split or merged: which ranges there are is found out again.
            self.parts.lock().forget(&whole);
        }
        let answer = self.read_on(request, range, size).await;
        if !answer.as_ref().is_err_and(is_bad_request) {
            return answer;
        }
        let whole = self.listed_ranges().await.unwrap_or_default().into_iter().find(|live| live.contains_range(range));
        match whole.filter(|whole| whole != range) {
            Some(whole) => match self.read_part(request, range, whole, is_one_key).await {
                // The range that is asked for by its id is gone, which is why the rest of it is a part of another one.
                Err(error) if error.kind() != ErrorKind::RangeGone => answer,
                read => read,
            },
            None => answer,
        }
    }

    /// Reads the next page with changes, or the end of the feed, with requests for exactly this range. A start at a time
    /// may be answered with pages that are empty before there are changes.
    async fn read_on(&self, request: &ReadChanges, range: &FeedRange, size: MaxItemCountHint) -> Result<Answer> {
        let mut read = self.resumed(request, range);
        let mut charge = 0.0;
        loop {
            let page = self.read_scanned(request, range, &read, (range, size)).await?;
            charge += page.answer.request_charge;
            match self.next_read(request, range, &read, &page) {
                Some(next) => read = next,
                None => {
                    let answer = Response::new(page.answer.into_value(), charge);
                    return Ok(Answer { answer, known: page.known, places: page.places, is_end: page.is_end });
                }
            }
        }
    }

    /// Reads the page with a request for exactly this range.
    pub(crate) async fn read_exactly(
        &self,
        request: &ReadChanges,
        range: &FeedRange,
        size: MaxItemCountHint,
    ) -> Result<Answer> {
        let mut answer = self.attempt(request, range, size).await;
        // The SDK may remember ranges that were merged since: listing them makes it forget.
        if answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::RangeGone) && self.is_in_one(range).await {
            answer = self.attempt(request, range, size).await;
        }
        // A client of the SDK that was made since refuses the positions of a container that was deleted.
        if answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::BadContinuation) {
            self.check_identity().await?;
        }
        let (page, etag) = match answer {
            Err(error) if request.mode == Mode::AllVersions => return Err(self.explain_refusal(error).await),
            other => other?,
        };
        let page = self.page(request, page, etag)?;
        let (now, is_empty) = (self.options.time().wall(), page.answer.changes.is_empty());
        let unproven = is_empty && self.positions.lock().is_unproven(now);
        if unproven || is_doubtful(&request.start, &page.answer) {
            self.check_identity().await?;
        }
        if unproven || !is_empty {
            self.positions.lock().prove(now);
        }
        Ok(page)
    }

    /// Compares the position that the page was read from with where the feed ends; none if either is not known.
    fn judge(
        &self,
        request: &ReadChanges,
        range: &FeedRange,
        page: &Answer,
        asked: Timestamp,
    ) -> Option<(u64, Verdict)> {
        let policy = self.options.failover();
        let newest = page.known.filter(|_| !policy.is_off())?;
        let position = position_of(&request.start);
        if self.is_incomparable(&request.start, page) {
            return None;
        }
        let reader = Reader { physical: page.answer.physical.clone(), asked: range.clone() };
        let mut positions = self.positions.lock();
        let judged = position.map(|position| {
            let told = Told { position, newest, at: asked };
            (position, positions.judge(&reader, told, policy))
        });
        // Afterwards: when the position was good is judged by what was known before this page.
        positions.confirm(&reader.physical, newest, asked);
        judged
    }

    /// Whether ETags of the range that was read do not count as its LSNs do, as this page or one before it has shown.
    pub(crate) fn is_incomparable(&self, start: &StartFrom, page: &Answer) -> bool {
        let Some(newest) = page.known else { return false };
        // An ETag that is not that of the request is what the range has now.
        let end = lsn_of(&page.answer.continuation).filter(|end| Some(*end) != position_of(start));
        self.positions.lock().is_incomparable(&page.answer.physical, end, newest)
    }

    fn beyond_end(&self, range: &FeedRange, position: u64, page: &Answer) -> Error {
        let (what, newest) = (self.what("read changes of"), page.known.unwrap_or_default());
        let message = format!(
            "{what}: position {position} of {range} is ahead of the feed, which was at {newest}, as after a failover that \
             lost writes; all versions cannot be read from a time: move it with `changefeed seek`"
        );
        Error::new(ErrorKind::ContinuationBeyondEnd, message)
    }

    /// Whether one physical range has all of these keys now.
    async fn is_in_one(&self, range: &FeedRange) -> bool {
        let listed = self.listed_ranges().await.unwrap_or_default();
        listed.iter().any(|live| live.intersection(range).as_ref() == Some(range))
    }

    /// Asks for the page, as far as the SDK knows the ranges. If no replica has what the client has seen in its session, as
    /// after a failover that lost writes, whatever is there is read: positions tell what is new, not sessions.
    async fn attempt(
        &self,
        request: &ReadChanges,
        range: &FeedRange,
        size: MaxItemCountHint,
    ) -> Result<(Page, String)> {
        match self.attempt_in(Session::Kept, request, range, size).await {
            Err(error) if is_session_behind(&error) => self.attempt_in(Session::Ignored, request, range, size).await,
            other => other,
        }
    }

    async fn attempt_in(
        &self,
        session: Session,
        request: &ReadChanges,
        range: &FeedRange,
        size: MaxItemCountHint,
    ) -> Result<(Page, String)> {
        let start = self.start(request, range)?;
        let mode = match request.mode {
            Mode::LatestVersion => ChangeFeedMode::LatestVersion,
            Mode::AllVersions => ChangeFeedMode::AllVersionsAndDeletes,
        };
        let mut options = ChangeFeedOptions::default()
            .with_operation_options(self.budgets.feed.reading(session))
            .with_max_item_count(size)
            .with_mode(mode);
        if let Some(token) = &start.token {
            options = options.with_continuation_token(token.clone());
        }
        let one = request.partition_key.as_ref().filter(|key| self.definition().epk(key).is_ok());
        let keys = one.map_or(Keys::Range(range), Keys::One);
        self.fetch(keys, start, options).await
    }

    fn start(&self, request: &ReadChanges, range: &FeedRange) -> Result<Start> {
        let bare = |from| Ok(Start { from, etag: None, token: None });
        if request.mode == Mode::AllVersions && !matches!(request.start, StartFrom::Now | StartFrom::Continuation(_)) {
            let message = "all-versions mode starts at now or at a continuation, not at the beginning or at a time";
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        match (&request.start, request.not_before) {
            (StartFrom::Now, _) => bare(ChangeFeedStartFrom::Now),
            (StartFrom::Beginning, None) => bare(ChangeFeedStartFrom::Beginning),
            (StartFrom::Beginning, Some(moment)) => bare(ChangeFeedStartFrom::PointInTime(token::moment(moment)?)),
            (StartFrom::Time(time), skip) => {
                let moment = skip.map_or(*time, |skip| skip.max(*time));
                bare(ChangeFeedStartFrom::PointInTime(token::moment(moment)?))
            }
            (StartFrom::Continuation(continuation), skip) => {
                let etag = self.checked(continuation)?.to_owned();
                let skip = skip.filter(|_| request.mode == Mode::LatestVersion);
                if request.partition_key.is_some() {
                    // A read of one key takes an ETag as it is, and sends what the start says beside it.
                    let from = skip.map(token::moment).transpose()?.map(ChangeFeedStartFrom::PointInTime);
                    let from = from.unwrap_or(ChangeFeedStartFrom::Beginning);
                    let token = Some(ContinuationToken::from_string(etag.clone()));
                    return Ok(Start { from, etag: Some(etag), token });
                }
                let token = token::resume(&self.identity.container, range, &etag, request.mode, skip)?;
                let token = Some(ContinuationToken::from_string(token));
                // What the start says beside a token is sent for ranges that the token does not name.
                Ok(Start { from: ChangeFeedStartFrom::Beginning, etag: Some(etag), token })
            }
        }
    }

    /// The ETag of a continuation, if it can be one.
    fn checked<'a>(&self, continuation: &'a Continuation) -> Result<&'a str> {
        let own = &self.identity.container;
        if let Some(container) = continuation.container().filter(|container| *container != own) {
            let message = format!("continuation {continuation} belongs to container {container}, not to {own}");
            return Err(Error::new(ErrorKind::ForeignContinuation, format!("{message}: start this one again")));
        }
        let etag = continuation.token();
        let printable = etag.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        // `*` is not a position: it means now, and would skip.
        let good = !etag.is_empty() && etag != "*" && etag.len() <= MAX_ETAG_BYTES && printable;
        good.then_some(etag).ok_or_else(|| {
            let message =
                format!("{continuation} is not a continuation of Azure Cosmos DB: expected the ETag of a page");
            Error::new(ErrorKind::BadContinuation, message)
        })
    }

    /// Reads the page, with both checks of the token: before the request that the SDK goes on where it should, after it
    /// that the page is of the whole range.
    async fn fetch(&self, keys: Keys<'_>, start: Start, options: ChangeFeedOptions) -> Result<(Page, String)> {
        let budget = &self.budgets.feed;
        let call = if start.etag.is_some() { Call::FeedAfter } else { Call::Feed };
        let client = self.sdk();
        let planning = client.query_change_feed::<Value>(keys.scope()?, start.from, Some(options));
        let mut pages = self.call(call, READING, budget, planning).await?;
        if let Some(etag) = &start.etag {
            let planned = pages.to_continuation_token().map_err(|error| self.feed_failed(call, error))?;
            match keys {
                Keys::Range(range) => token::accepted(planned.as_str(), range, etag)?,
                Keys::One(..) => token::accepted_for_one_key(planned.as_str(), etag)?,
            }
        }
        let reading = async { pages.next().await.transpose() };
        let page = self.call(call, READING, budget, reading).await?;
        let page = page.ok_or_else(|| Error::new(ErrorKind::Unavailable, self.what("the feed ended:")))?;
        let after = pages.to_continuation_token().map_err(|error| self.feed_failed(call, error))?;
        let etag = match keys {
            Keys::Range(range) => token::position(after.as_str(), range)?,
            Keys::One(..) => token::position_of_one_key(after.as_str())?,
        };
        Ok((page, etag))
    }

    fn feed_failed(&self, call: Call, error: azure_data_cosmos::CosmosError) -> Error {
        crate::error::failed(call, &self.what(READING), error)
    }

    fn page(&self, request: &ReadChanges, page: Page, etag: String) -> Result<Answer> {
        let physical = range_id(page.headers())?;
        if let Some(asked) = request.physical.as_ref().filter(|asked| **asked != physical) {
            let message = format!("range {asked} was merged into range {physical}: read the feed ranges again");
            return Err(Error::new(ErrorKind::RangeGone, message));
        }
        let session = page.headers().session_token().and_then(|token| session_lsn(token.as_str()));
        let (told, known) = (page.headers().lsn().or(session).unwrap_or_default(), page.headers().lsn().max(session));
        let diagnostics = page.diagnostics();
        let charge = self.charge_of(Call::Feed, &diagnostics)?;
        let is_end = page.items().is_empty() && !(may_go_on(&request.start, &etag) && was_ok(&diagnostics));
        let decode = |entry| change::decode(entry, request.mode, Lsn::new(told));
        let changes: Vec<Change> = page.items().iter().map(decode).collect();
        let places: Vec<_> =
            changes.iter().zip(page.items()).map(|(change, entry)| self.place(change, entry)).collect();
        let is_foreign = |rid: &ResourceId| rid.container_part() != Some(self.identity.container);
        if changes.iter().filter_map(|change| change.rid.as_ref()).any(is_foreign) {
            return Err(self.replaced());
        }
        let newest = changes.iter().map(|change| change.lsn.get()).fold(told, u64::max);
        let wanted = changes.into_iter().zip(places).filter(|(change, _)| is_wanted(change, request.not_before));
        let (changes, places) = wanted.unzip();
        let page = ChangePage {
            changes,
            continuation: Continuation::new(etag, self.identity.container),
            newest_lsn: Lsn::new(newest),
            remaining: None,
            physical,
        };
        let known = known.map(|known| known.max(newest));
        Ok(Answer { answer: Response::new(page, charge), known, places, is_end })
    }

    /// Where a change belongs: by its item or, for a delete without one, by the key that comes with it.
    fn place(&self, change: &Change, entry: &ChangeFeedItem<Value>) -> Option<Epk> {
        let body = change.current.as_ref().or(change.previous.as_ref());
        let key = match body {
            Some(body) => self.definition().extract(body).ok()?,
            None => change::deleted_key(entry.metadata()?.partition_key()?, self.definition())?,
        };
        self.definition().epk(&key.or_undefined()).ok()
    }
}

/// Whether there may be more after an empty page that ends at `etag`. A start at now begins at the end of the feed, and a
/// page that ends where it began makes no progress.
fn may_go_on(start: &StartFrom, etag: &str) -> bool {
    match start {
        StartFrom::Now => false,
        StartFrom::Continuation(after) => after.token() != etag,
        StartFrom::Beginning | StartFrom::Time(_) => true,
    }
}

/// Whether the request of a page was answered with 200, and not with 304 as at the end of the feed. Returns `false` if the
/// diagnostics have neither.
fn was_ok(diagnostics: &DiagnosticsContext) -> bool {
    let requests = diagnostics.requests();
    let mut statuses = requests.iter().rev().map(|request| u16::from(request.status().status_code()));
    statuses.find(|status| matches!(status, 200 | 304)) == Some(200)
}

/// Whether an empty page may well come from another container that has got the name of this one: it begins there, or the
/// feed ends before the position. A page with items shows whose they are.
fn is_doubtful(start: &StartFrom, page: &ChangePage) -> bool {
    let StartFrom::Continuation(after) = start else { return page.changes.is_empty() };
    page.changes.is_empty() && lsn_of(after).is_some_and(|position| page.newest_lsn.get() < position)
}

/// The LSN of the position of a start, if it has one.
fn position_of(start: &StartFrom) -> Option<u64> {
    match start {
        StartFrom::Continuation(after) => lsn_of(after),
        _ => None,
    }
}

/// The LSN of a position, if the service counts with plain numbers there.
pub(crate) fn lsn_of(continuation: &Continuation) -> Option<u64> {
    continuation.token().trim_matches('"').parse().ok()
}

/// Whether a change is to be shown. The service compares whole seconds.
fn is_wanted(change: &Change, not_before: Option<Timestamp>) -> bool {
    not_before.is_none_or(|moment| change.timestamp.as_secs() >= moment.as_secs())
}

/// Whether the service, or the SDK, refused the request as one that it does not understand.
fn is_bad_request(error: &Error) -> bool {
    let is_400 = cause_of(error).is_some_and(|cause| status_of(cause).0 == 400);
    is_400 && matches!(error.kind(), ErrorKind::BadContinuation | ErrorKind::InvalidArgument)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_page_that_makes_no_progress_is_the_end() {
        let after = |etag: &str| StartFrom::Continuation(Continuation::from_token(etag));
        assert!(may_go_on(&StartFrom::Beginning, "\"7\""));
        assert!(may_go_on(&StartFrom::Time(Timestamp::from_secs(5)), "\"7\""));
        assert!(may_go_on(&after("\"6\""), "\"7\""));
        assert!(!may_go_on(&after("\"7\""), "\"7\""));
        assert!(!may_go_on(&StartFrom::Now, "\"7\""));
    }
}
