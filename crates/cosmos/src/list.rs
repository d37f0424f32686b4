//! Point reads and listings.

use std::time::Duration;

use azure_data_cosmos::{
    FeedScope, Query,
    feed::ContinuationToken,
    options::{ItemReadOptions, QueryOptions},
};
use bytes::Bytes;
use changefeed_core::{
    Error, ErrorKind, FeedRange, Item, ItemId, ItemKey, ItemPage, ListItems, Lsn, PartitionKey, Response, Result,
};
use futures_util::StreamExt as _;
use serde_json::value::RawValue;

use crate::{
    body,
    container::CosmosContainer,
    error::{Call, is_session_behind},
    key,
    listing::Place,
    options::Session,
    ranges::{page_size, scope},
};

/// What tokens of the SDK begin with.
const TOKEN_PREFIX: &str = "c1.";

impl CosmosContainer {
    /// Reads an item. If no replica has what the client has seen in its session, as after a failover that lost writes,
    /// whatever is there is read: a conditional write then tells whether it is current.
    pub(crate) async fn read_one(&self, key: &ItemKey) -> Result<Response<Item>> {
        let reading = Box::pin(async {
            match self.read_one_in(Session::Kept, key).await {
                Err(error) if is_session_behind(&error) => self.read_one_in(Session::Ignored, key).await,
                other => other,
            }
        });
        self.together(Call::Read, &format!("read item {} of", key.id), &self.budgets.items, reading).await
    }

    async fn read_one_in(&self, session: Session, ItemKey { partition_key, id }: &ItemKey) -> Result<Response<Item>> {
        let definition = self.definition();
        definition.epk(partition_key)?;
        let undefined = *partition_key == PartitionKey::none() || *partition_key == PartitionKey::undefined();
        let partition_key = key::to_sdk(partition_key)?;
        let budget = &self.budgets.items;
        if is_no_path(id) {
            return self.find_one(session, partition_key, id).await;
        }
        let options = ItemReadOptions::default().with_operation_options(budget.reading(session));
        let client = self.sdk();
        let reading = client.read_item(partition_key, id.as_str(), Some(options));
        let read = self.call(Call::Read, &format!("read item {id} of"), budget, reading).await;
        let response = match read {
            // The SDK refuses a key without value where the container has one; there is no such item either way.
            Err(error) if undefined && error.kind() == ErrorKind::InvalidArgument => {
                return Err(Error::new(ErrorKind::ItemNotFound, format!("no item {id} without partition key")));
            }
            other => other?,
        };
        let charge = self.charge_of(Call::Read, &response.diagnostics())?;
        let headers = response.headers();
        let lsn = Lsn::new(headers.item_lsn().or(headers.lsn()).unwrap_or_default());
        let body = response.into_body().single().map_err(|error| {
            Error::new(ErrorKind::Corrupt, format!("read the body of item {id}")).with_source(error)
        })?;
        let item = body::item(body, lsn)?;
        if item.rid.container_part() != Some(self.identity.container) {
            return Err(self.replaced());
        }
        Ok(Response::new(item, charge))
    }

    /// Reads an item whose id cannot stand in a path.
    async fn find_one(
        &self,
        session: Session,
        partition_key: azure_data_cosmos::PartitionKey,
        id: &ItemId,
    ) -> Result<Response<Item>> {
        let budget = &self.budgets.items;
        let query = with(Query::from("SELECT * FROM c WHERE c.id = @id"), "@id", id);
        let options = QueryOptions::default().with_operation_options(budget.reading(session));
        let finding = async {
            let scope = FeedScope::partition(partition_key);
            let rows = self.sdk().query_items::<Box<RawValue>>(query, scope, Some(options)).await?;
            rows.into_pages().next().await.transpose()
        };
        let page = self.call(Call::Read, &format!("read item {id} of"), budget, finding).await?;
        let charge = match &page {
            Some(page) => self.charge_of(Call::Read, &page.diagnostics())?,
            None => 0.0,
        };
        match page.and_then(|page| page.into_items().into_iter().next()) {
            Some(row) => Ok(Response::new(body::item(Box::<str>::from(row).into_string().into(), Lsn::ZERO)?, charge)),
            None => {
                let error = Error::new(ErrorKind::ItemNotFound, format!("there is no item {id}"));
                Err(error.with_request_charge(charge))
            }
        }
    }

    /// A page of items. The service does not tell the LSN of an item in a listing, so it is zero there.
    pub(crate) async fn list_page(&self, request: ListItems) -> Result<Response<ItemPage>> {
        if !request.cursors {
            return self.list_up_to(&request, request.max_items).await;
        }
        // Where to go on is known after a page only, so each item is a page of its own.
        let (mut all, mut charge) = (ItemPage::default(), 0.0);
        let mut request = request;
        loop {
            let page = self.list_up_to(&request, request.max_items.min(1)).await?;
            charge += page.request_charge;
            let ItemPage { items, next, .. } = page.into_value();
            let after = next.clone().unwrap_or_else(|| DRAINED.to_owned());
            all.cursors.extend(items.iter().map(|_| after.clone()));
            all.items.extend(items);
            if next.is_none() || all.items.len() >= request.max_items {
                return Ok(Response::new(ItemPage { next, ..all }, charge));
            }
            request.after = next;
        }
    }

    /// A page of items, read without the session if no replica has what it has seen.
    async fn list_up_to(&self, request: &ListItems, max_items: usize) -> Result<Response<ItemPage>> {
        let listing = Box::pin(async {
            match self.list_up_to_in(Session::Kept, request, max_items).await {
                Err(error) if is_session_behind(&error) => {
                    self.list_up_to_in(Session::Ignored, request, max_items).await
                }
                other => other,
            }
        });
        self.together(Call::List, "list the items of", &self.budgets.items, listing).await
    }

    async fn list_up_to_in(
        &self,
        session: Session,
        request: &ListItems,
        max_items: usize,
    ) -> Result<Response<ItemPage>> {
        let mut options = QueryOptions::default()
            .with_operation_options(self.budgets.items.reading(session))
            .with_max_item_count(page_size(max_items)?);
        if request.after.as_deref() == Some(DRAINED) {
            return Ok(Response::free(ItemPage::default()));
        }
        let place = request.after.as_deref().map(Place::parse).transpose()?;
        if let Some(place) = &place {
            options = options.with_continuation_token(ContinuationToken::from_string(place.token().to_owned()));
        }
        let call = if request.after.is_some() { Call::ListAfter } else { Call::List };
        let scope = match request.range == FeedRange::full() {
            true => FeedScope::full_container(),
            false => scope(&request.range)?,
        };
        let began = self.options.time().wall();
        let listing = async {
            let rows = self.sdk().query_items::<Box<RawValue>>(query(request), scope, Some(options)).await?;
            let mut pages = rows.into_pages();
            let Some(page) = pages.next().await.transpose()? else { return Ok(None) };
            Ok(Some((page, pages.to_continuation_token()?)))
        };
        let Some((page, next)) = self.call(call, "list the items of", &self.budgets.items, listing).await? else {
            self.check_identity().await?;
            return Ok(Response::free(ItemPage::default()));
        };
        let charge = self.charge_of(call, &page.diagnostics())?;
        let is_last = next.as_str().is_empty() || is_drained(next.as_str());
        let took = self.options.time().wall().as_millis().saturating_sub(began.as_millis());
        let items = page.into_items().into_iter().map(|row| {
            let body = Bytes::from(Box::<str>::from(row).into_string());
            body::item(body, Lsn::ZERO)
        });
        let items: Vec<Item> = items.collect::<Result<_>>()?;
        // The service lists another container that has got the name.
        if items.iter().any(|item| item.rid.container_part() != Some(self.identity.container)) {
            return Err(self.replaced());
        }
        if items.is_empty() && is_last && request.after.is_none() {
            self.check_identity().await?;
        }
        let next = match is_last {
            true => None,
            false => {
                Some(Place::after(place.as_ref(), next.as_str(), items.len(), Duration::from_millis(took))?.to_string())
            }
        };
        Ok(Response::new(ItemPage { items, cursors: Vec::new(), next }, charge))
    }
}

/// Whether an id does not arrive in a path as it is: before the request is sent, `.` and `..` are resolved and some control
/// characters dropped, and a `/`, also as `%2F`, ends a segment for the service.
pub(crate) fn is_no_path(id: &ItemId) -> bool {
    matches!(id.as_str(), "" | "." | "..") || id.contains(|char: char| char.is_control() || "/\\#".contains(char))
}

/// A place after the last item.
const DRAINED: &str = "c1.end";

/// Whether a token of the SDK says that there is nothing more.
fn is_drained(token: &str) -> bool {
    use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
    let json = token.strip_prefix(TOKEN_PREFIX).and_then(|payload| BASE64_URL_SAFE_NO_PAD.decode(payload).ok());
    let state = json.and_then(|json| serde_json::from_slice::<serde_json::Value>(&json).ok());
    state.is_some_and(|state| state["root"]["kind"] == "drained")
}

fn query(request: &ListItems) -> Query {
    let mut conditions = Vec::new();
    if !request.id_prefix.is_empty() {
        conditions.push("STARTSWITH(c.id, @prefix)");
    }
    if request.rid.is_some() {
        conditions.push("c._rid = @rid");
    }
    let text = match conditions.is_empty() {
        true => "SELECT * FROM c".to_owned(),
        false => format!("SELECT * FROM c WHERE {}", conditions.join(" AND ")),
    };
    let mut query = Query::from(text);
    if !request.id_prefix.is_empty() {
        query = with(query, "@prefix", &request.id_prefix);
    }
    if let Some(rid) = &request.rid {
        query = with(query, "@rid", &rid.to_string());
    }
    query
}

/// A query with a text as parameter; a text always fits.
fn with(query: Query, name: &str, value: &str) -> Query {
    query.with_parameter(name, value).expect("invariant: a text is a parameter of a query")
}
