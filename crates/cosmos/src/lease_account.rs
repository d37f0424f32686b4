//! What the account of a lease container must be: checked when the container is opened and again while it is written to,
//! since an operator may change the account while hosts run.

use std::{fmt, time::Duration};

use azure_core::http::Url;
use azure_data_cosmos::options::{ReadConsistencyStrategy, Region};
use changefeed_core::{Error, ErrorKind, Result, Timestamp};
use parking_lot::Mutex;
use tracing::warn;

use crate::{
    account_properties::{AccountProperties, Consistency},
    options::Options,
    timer::within,
};

/// How long properties are taken for valid. The SDK reads them every five minutes, and writes where they say from then on.
const VALID: Duration = Duration::from_secs(120);

/// Between two reads of properties that are not valid: hosts do nothing until the account is as it must be again.
const RETRY: Duration = Duration::from_secs(10);

/// How long a write waits until the properties are read again; and the pause between two reads while no lease is written
/// because another region has answered.
const LIMIT: Duration = Duration::from_secs(2);

/// The account of a lease container.
pub(crate) struct LeaseAccount {
    account: AccountProperties,
    options: Options,
    state: Mutex<State>,
}

struct State {
    /// When the properties were read.
    checked: Timestamp,
    /// When a read of them began last, whether it succeeded or not.
    tried: Timestamp,
    /// How often writes went to another region than before, and how often they had when the properties were read.
    moves: u64,
    moves_checked: u64,
    /// Why the account cannot hold leases, if it cannot.
    refusal: Option<String>,
    /// The region that answered the newest write.
    answered: Option<Region>,
}

impl LeaseAccount {
    /// Checks the account, which is that of the client with this endpoint. Returns the options for its leases as well.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] with what to change.
    pub(crate) fn new(account: &AccountProperties, endpoint: &Url, options: Options) -> Result<(Self, Options)> {
        if !account.are_of(endpoint) {
            let message = format!(
                "the account properties are those of {}, and the lease container is in {endpoint}: read them with \
                 AccountProperties::read(\"{endpoint}\", …)",
                account.endpoint()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let Fit { strategy, others } = check(account, &options)?;
        let options = options.for_leases(strategy, others);
        let read_at = account.read_at();
        let state =
            State { checked: read_at, tried: read_at, moves: 0, moves_checked: 0, refusal: None, answered: None };
        Ok((Self { account: account.clone(), options: options.clone(), state: Mutex::new(state) }, options))
    }

    /// Checks the account again if that is due. Called before each write: a host that writes no leases acquires none.
    ///
    /// # Errors
    /// As [`LeaseAccount::new`]. If the properties cannot be read, what was found before remains valid, unless another region
    /// has answered since: then no lease is written, with `Unavailable`, until they are read.
    pub(crate) async fn check(&self) -> Result<()> {
        if let Some(moves) = self.claim() {
            match within(LIMIT, Box::pin(self.account.read_again())).await {
                Some(Ok(account)) => self.decide(&account, moves),
                Some(Err(error)) => warn!(%error, "the settings of the lease account cannot be read again"),
                None => warn!(limit = ?LIMIT, "the lease account does not tell its settings in time"),
            }
        }
        self.verdict()
    }

    /// Whether leases may be written, by what is known.
    fn verdict(&self) -> Result<()> {
        let state = self.state.lock();
        if let Some(message) = &state.refusal {
            return Err(Error::new(ErrorKind::InvalidArgument, message.clone()));
        }
        if state.has_moved() && self.options.pinned_region().is_none() {
            let message = "another region has answered a write of a lease than before, and the settings of the account could \
                           not be read since: two regions that take writes would give one lease to two hosts";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        Ok(())
    }

    /// Notes where a write was performed. If that is not where the one before it was, there was a failover, or the account
    /// takes writes in several regions now: it is checked before the next write.
    pub(crate) fn answered(&self, region: &Region) {
        let mut state = self.state.lock();
        if state.answered.as_ref().is_some_and(|before| before != region) {
            state.moves += 1;
            state.tried = Timestamp::default();
        }
        state.answered = Some(region.clone());
    }

    /// Whether a check is due: then how often writes have moved so far. To one caller at a time; the others go on with what is
    /// known.
    fn claim(&self) -> Option<u64> {
        let (now, mut state) = (self.options.time().wall(), self.state.lock());
        // A clock may jump back.
        let has_passed = |since: Timestamp, time| now < since || since.saturating_add(time) <= now;
        let is_due = match (state.has_moved(), &state.refusal) {
            (true, _) => has_passed(state.tried, LIMIT),
            (false, Some(_)) => has_passed(state.tried, RETRY),
            (false, None) => has_passed(state.checked, VALID) && has_passed(state.tried, RETRY),
        };
        is_due.then(|| {
            state.tried = now;
            state.moves
        })
    }

    /// Takes in properties that were read after writes had moved so often.
    fn decide(&self, account: &AccountProperties, moves: u64) {
        let found = check(account, &self.options);
        if let Ok(fit) = &found {
            self.options.exclude(fit.others.clone());
        }
        let refusal = found.err().map(|error| error.message().to_owned());
        let now = self.options.time().wall();
        let mut state = self.state.lock();
        if let Some(refusal) = refusal.as_ref().filter(|_| state.refusal.is_none()) {
            warn!(%refusal, "the lease account was changed: leases are not written any more");
        }
        (state.refusal, state.checked, state.moves_checked) = (refusal, now, moves);
    }
}

impl State {
    /// Whether another region has answered since the properties were read.
    fn has_moved(&self) -> bool {
        self.moves != self.moves_checked
    }
}

impl fmt::Debug for LeaseAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseAccount({})", self.account.endpoint())
    }
}

/// How leases are kept in an account that can hold them.
#[derive(Debug)]
struct Fit {
    strategy: ReadConsistencyStrategy,
    /// The regions beside the pinned one; none if none is pinned.
    others: Vec<String>,
}

/// Refuses an account that cannot hold leases.
fn check(account: &AccountProperties, options: &Options) -> Result<Fit> {
    let refuse = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
    let strategy = match account.consistency {
        // `Default` is what the account has, whatever the client of the program or the environment asks for.
        Consistency::Strong | Consistency::BoundedStaleness => ReadConsistencyStrategy::Default,
        Consistency::Session => ReadConsistencyStrategy::Session,
        weak @ (Consistency::ConsistentPrefix | Consistency::Eventual) => {
            return refuse(format!(
                "the default consistency of the account is {weak:?}, with which a host may not see its own lease: set it to \
                 Session or stronger, or keep leases in another account"
            ));
        }
    };
    let regions = account.write_regions.join(", ");
    let Some(pinned) = options.pinned_region() else {
        if !account.has_multiple_write_regions || account.write_regions.len() < 2 {
            return Ok(Fit { strategy, others: Vec::new() });
        }
        return refuse(format!(
            "the account takes writes in several regions ({regions}), so two hosts could own one lease: pin one of them \
             with Options::write_region, the same on every host, or keep leases in an account with one write region"
        ));
    };
    // Also with one write region: others may still use the one that is pinned, or the account may get more.
    if !account.write_regions.iter().any(|region| region == pinned) {
        return refuse(format!("{pinned:?} is no write region of the account: use one of {regions}"));
    }
    let mut others = account.write_regions.clone();
    others.extend(account.regions.iter().cloned());
    others.retain(|region| region != pinned);
    others.sort();
    others.dedup();
    Ok(Fit { strategy, others })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::account_properties::Credential;

    fn account(multiple: bool, writable: &[&str], regions: &[&str], consistency: &str) -> AccountProperties {
        let locations = |names: &[&str]| names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
        let body = json!({
            "writableLocations": locations(writable), "readableLocations": locations(regions),
            "enableMultipleWriteLocations": multiple, "userConsistencyPolicy": {"defaultConsistencyLevel": consistency},
        });
        let endpoint = Url::parse("https://shop.example.com").unwrap();
        let key = Credential::Key(String::new());
        AccountProperties::parse(body.to_string().as_bytes(), endpoint, key, Timestamp::default()).unwrap()
    }

    fn refusal(account: &AccountProperties, options: &Options) -> String {
        check(account, options).unwrap_err().message().to_owned()
    }

    #[test]
    fn weak_consistency_is_refused_for_leases_and_stronger_is_left_as_it_is() {
        for weak in ["ConsistentPrefix", "Eventual"] {
            let refused = refusal(&account(false, &["a"], &["a"], weak), &Options::new());
            assert!(refused.contains("set it to Session or stronger"), "{refused}");
        }
        let strategies = [
            ("Session", ReadConsistencyStrategy::Session),
            ("BoundedStaleness", ReadConsistencyStrategy::Default),
            ("Strong", ReadConsistencyStrategy::Default),
        ];
        for (good, strategy) in strategies {
            assert_eq!(check(&account(false, &["a"], &["a"], good), &Options::new()).unwrap().strategy, strategy);
        }
    }

    #[test]
    fn several_write_regions_are_refused_for_leases_unless_one_is_pinned() {
        let several = account(true, &["a", "b", "c"], &["a", "b", "c"], "Session");
        let refused = refusal(&several, &Options::new());
        assert!(refused.contains("pin one of them with Options::write_region"), "{refused}");
        let refused = refusal(&several, &Options::new().write_region("d"));
        assert!(refused.contains("use one of a, b, c"), "{refused}");
        assert_eq!(check(&several, &Options::new().write_region("b")).unwrap().others, ["a", "c"]);
        let left = account(true, &["a"], &["a"], "Session");
        assert!(check(&left, &Options::new()).unwrap().others.is_empty());
        assert!(refusal(&left, &Options::new().write_region("b")).contains("\"b\" is no write region"));
        assert!(check(&account(false, &["a"], &["a", "b"], "Session"), &Options::new()).unwrap().others.is_empty());
    }

    #[test]
    fn a_region_is_pinned_also_while_the_account_has_one_write_region() {
        let single = account(false, &["a"], &["a", "b"], "Session");
        assert_eq!(check(&single, &Options::new().write_region("a")).unwrap().others, ["b"]);
        let refused = refusal(&single, &Options::new().write_region("b"));
        assert!(refused.contains("\"b\" is no write region of the account: use one of a"), "{refused}");
        let endpoint = Url::parse("https://shop.example.com").unwrap();
        let (_, options) = LeaseAccount::new(&single, &endpoint, Options::new().write_region("a")).unwrap();
        assert_eq!(options.only_region(), Some("a"));
    }

    #[test]
    fn an_account_that_changes_is_followed() {
        let endpoint = Url::parse("https://shop.example.com").unwrap();
        let single = account(false, &["a"], &["a"], "Session");
        let several = account(true, &["a", "b"], &["a", "b"], "Session");
        let (pinned, options) = LeaseAccount::new(&single, &endpoint, Options::new().write_region("a")).unwrap();
        let excluded = || options.budgets().items.excluded();
        assert!(excluded().is_empty());
        pinned.decide(&several, 0);
        assert_eq!((pinned.state.lock().refusal.clone(), excluded()), (None, vec!["b".to_owned()]));
        let (free, _) = LeaseAccount::new(&single, &endpoint, Options::new()).unwrap();
        free.decide(&several, 0);
        assert!(free.state.lock().refusal.as_ref().unwrap().contains("several regions (a, b)"));
        free.decide(&single, 0);
        assert_eq!(free.state.lock().refusal, None);
    }

    #[test]
    fn a_check_is_due_when_properties_are_old_and_required_when_another_region_answers() {
        let endpoint = Url::parse("https://shop.example.com").unwrap();
        let single = account(false, &["a"], &["a", "b"], "Session");
        let (account, _) = LeaseAccount::new(&single, &endpoint, Options::new()).unwrap();
        // The properties are from 1970; one caller checks, and once.
        assert_eq!((account.claim(), account.claim()), (Some(0), None));
        account.decide(&single, 0);
        let [a, b] = ["a", "b"].map(|name| Region::from(name.to_owned()));
        account.answered(&a);
        account.answered(&a);
        assert_eq!(account.claim(), None);
        account.verdict().unwrap();
        account.answered(&b);
        assert_eq!((account.claim(), account.claim()), (Some(1), None));
        // That read has failed, or the next move came before its end: no lease is written.
        assert_eq!(account.verdict().unwrap_err().kind(), ErrorKind::Unavailable);
        account.answered(&a);
        account.decide(&single, 1);
        assert_eq!(account.verdict().unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(account.claim(), Some(2));
        account.decide(&single, 2);
        account.verdict().unwrap();
    }
}
