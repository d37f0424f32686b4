//! Applies an import plan: creates the leases that are missing, after the hosts of the source are known to be gone.

use changefeed_core::{Container, Error, ErrorKind, Result};
use serde::Serialize;
use serde_json::Value;

use super::plan::{ConvertedLease, Foreign, ImportPlan, start_text};
use crate::lease::document::{LeaseDocument, StartPosition};

/// What an import made of a lease of its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ImportOutcome {
    /// The lease was created at the position of the plan.
    Created,
    /// The lease container has a lease of this name, which was left as it is. An earlier import created it, or a host.
    Present,
    /// Another lease has some of its keys, such as a child of a range that was split since. Nothing was written.
    Covered,
}

/// A lease of a plan that was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AppliedLease {
    /// The id of the document that the lease comes from.
    pub from: String,
    /// The id of the lease; if it is covered by another one, the id of that one.
    pub id: String,
    /// What was done.
    pub outcome: ImportOutcome,
    /// The position of that lease now; none if it has not read anything yet. If it is present and not where the plan
    /// says, a host has worked on it since an earlier import, or it was created without one.
    pub continuation: Option<String>,
}

impl ImportPlan {
    /// Creates the leases of the plan in `leases`. `source` is the container that the documents of the plan were read
    /// from, which may be the same one. The dry run is the plan itself.
    ///
    /// The documents of the source are read again first: nothing is written if a host owns one of them, or if one has
    /// moved since the plan was made. They are not changed. Leases that exist already are left as they are, so an import
    /// that was interrupted can be repeated, also after hosts have begun to work on the new leases.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the plan does not move everything (see [`ImportPlan::check`]) or was made for a
    /// container with another partition key, or if leases would expire in `leases`, [`ErrorKind::Locked`] if a host owns a document of the source,
    /// [`ErrorKind::PreconditionFailed`] if one was moved or deleted since the plan was made, and those of the stores.
    /// After an error of a store some leases may exist: apply the plan again.
    pub async fn apply(&self, source: &Container, leases: &Container) -> Result<Vec<AppliedLease>> {
        self.check()?;
        self.check_partition_key(leases)?;
        leases.time_to_live().await?.check_for_leases(leases.identity())?;
        let sources = source.list(&common_prefix(self.leases.iter().map(|lease| lease.from.as_str()))).await?;
        let sources: Vec<Foreign> = sources.iter().filter_map(|item| Foreign::parse(&item.body).ok()).collect();
        let existing = leases.list(self.target_prefix()).await?;
        let existing: Vec<LeaseDocument> =
            existing.iter().filter_map(|item| LeaseDocument::parse(&item.body).ok()).collect();
        let mut applied = Vec::with_capacity(self.leases.len());
        for (lease, found) in self.compare(&sources, &existing)? {
            applied.push(match found {
                Some(found) => found,
                None => create(lease, leases).await?,
            });
        }
        Ok(applied)
    }

    /// Decides what becomes of each lease: what was found in its place, or none if it is to be created. Pure.
    fn compare<'a>(
        &'a self,
        sources: &[Foreign],
        existing: &[LeaseDocument],
    ) -> Result<Vec<(&'a ConvertedLease, Option<AppliedLease>)>> {
        let mut compared = Vec::with_capacity(self.leases.len());
        for lease in &self.leases {
            let source = sources.iter().find(|source| source.id == lease.from);
            if let Some(owner) =
                source.filter(|source| source.id != lease.id).and_then(|source| source.owner.as_deref())
            {
                let message = format!("lease {} is owned by {owner}: stop its hosts first", lease.from);
                return Err(Error::new(ErrorKind::Locked, message));
            }
            let found = existing.iter().find_map(|document| found(lease, document));
            if found.is_none() {
                check_unmoved(lease, source)?;
            }
            compared.push((lease, found));
        }
        Ok(compared)
    }

    /// How the ids of the new leases begin.
    fn target_prefix(&self) -> &str {
        self.leases.first().and_then(|lease| lease.id.strip_suffix(lease.token.as_str())).unwrap_or_default()
    }

    fn check_partition_key(&self, leases: &Container) -> Result<()> {
        let definition = &leases.identity().partition_key;
        let paths: Vec<&str> = definition.paths().collect();
        let is_keyed = |lease: &ConvertedLease| {
            serde_json::from_slice::<Value>(&lease.document)
                .is_ok_and(|document| document.get("partitionKey").is_some())
        };
        let fits = match paths.as_slice() {
            ["/id"] => !self.leases.iter().any(is_keyed),
            ["/partitionKey"] => self.leases.iter().all(is_keyed),
            _ => false,
        };
        if fits {
            return Ok(());
        }
        let message = format!(
            "the lease container {} has the partition key {definition}, and the plan was made for another one: pass \
             `keyed` to plan_import if it is /partitionKey, and use a container with /id or /partitionKey",
            leases.identity().container_name
        );
        Err(Error::new(ErrorKind::InvalidArgument, message))
    }
}

/// What a document of the lease container means for a lease of the plan.
fn found(lease: &ConvertedLease, document: &LeaseDocument) -> Option<AppliedLease> {
    let overlaps = || !document.is_gone() && document.range().is_some_and(|range| range.overlaps(&lease.range));
    let outcome = match document.id == lease.id {
        true => ImportOutcome::Present,
        false if document.id != lease.from && overlaps() => ImportOutcome::Covered,
        false => return None,
    };
    Some(AppliedLease {
        from: lease.from.clone(),
        id: document.id.clone(),
        outcome,
        continuation: document.continuation.clone(),
    })
}

/// Refuses a lease whose source is not what the plan was made from.
fn check_unmoved(lease: &ConvertedLease, source: Option<&Foreign>) -> Result<()> {
    let problem = match source {
        None => "was deleted",
        Some(source) => {
            let continuation = match &source.start {
                Some(StartPosition::Continuation(token)) => Some(token),
                _ => None,
            };
            if continuation == lease.continuation.as_ref() && start_text(source.start.as_ref()) == lease.start {
                return Ok(());
            }
            "has moved"
        }
    };
    let message = format!("lease {} {problem} since the plan was made: plan the import again", lease.from);
    Err(Error::new(ErrorKind::PreconditionFailed, message))
}

async fn create(lease: &ConvertedLease, leases: &Container) -> Result<AppliedLease> {
    let document: Value = serde_json::from_slice(&lease.document)
        .map_err(|error| Error::new(ErrorKind::BadJson, format!("the document of {}", lease.id)).with_source(error))?;
    let applied =
        |outcome, continuation| AppliedLease { from: lease.from.clone(), id: lease.id.clone(), outcome, continuation };
    match leases.create(&document).await {
        Ok(_) => Ok(applied(ImportOutcome::Created, lease.continuation.clone())),
        // Another import, or a host, created it meanwhile.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let item = leases.read_item(lease.id.as_str(), &lease.id).await?;
            let continuation = LeaseDocument::parse(&item.body).ok().and_then(|document| document.continuation);
            Ok(applied(ImportOutcome::Present, continuation))
        }
        Err(error) => Err(error),
    }
}

/// The longest text that all ids begin with.
fn common_prefix<'a>(mut ids: impl Iterator<Item = &'a str>) -> String {
    let Some(first) = ids.next() else { return String::new() };
    let common = ids.fold(first.len(), |length, id| {
        let same = first.char_indices().zip(id.chars()).take_while(|((_, own), other)| own == other);
        same.last().map_or(0, |((at, own), _)| at + own.len_utf8()).min(length)
    });
    first.get(..common).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_prefix_ends_where_ids_differ() {
        for (ids, common) in [
            (&["a..0", "a..1"][..], "a.."),
            (&["a..0", "a..0é", "a..0è"], "a..0"),
            (&["a", "b"], ""),
            (&["a..-FF"], "a..-FF"),
            (&[], ""),
        ] {
            assert_eq!(common_prefix(ids.iter().copied()), common, "{ids:?}");
        }
    }
}
