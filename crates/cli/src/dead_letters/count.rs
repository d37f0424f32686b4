//! How many dead letters a processor has, for `lag` and `explain`.

use changefeed::DeadLetterDocument;
use serde::Serialize;

use super::{PAGE, groups::count_of_letters, of_processor::of_processor};
use crate::{
    args::{AlsoLettersArgs, ContainerName},
    exit::Result,
    processor_stores::ProcessorStores,
};

/// How many pages are read to count: a look at a processor must not read a container of any size.
const PAGES: usize = 10;

/// How many dead letters there are.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LetterCount {
    #[serde(serialize_with = "shown")]
    container: ContainerName,
    #[serde(skip)]
    processor: String,
    count: u64,
    /// Whether there may be more: not all were read.
    more: bool,
}

impl LetterCount {
    /// Counts those of a processor, or of one of its leases, in the container that the arguments name. A container that is
    /// not there has none: hosts create it when they start.
    pub(crate) async fn of(args: &AlsoLettersArgs, on: &ProcessorStores, lease: Option<&str>) -> Result<Option<Self>> {
        let Some((name, letters)) = of_processor(args, on, "counted").await? else { return Ok(None) };
        let is_meant = |letter: &&DeadLetterDocument| lease.is_none_or(|lease| letter.lease == lease);
        let mut found = Self { container: name.clone(), processor: on.name.clone(), count: 0, more: false };
        let mut after = None;
        for _ in 0..PAGES {
            let page = letters.page(after.as_deref(), PAGE).await?;
            found.count += page.letters.iter().filter(is_meant).count() as u64;
            after = page.next;
            found.more = after.is_some();
            if !found.more {
                break;
            }
        }
        Ok(Some(found))
    }

    /// Whether there is none, as far as was read.
    pub(crate) fn is_none(&self) -> bool {
        self.count == 0
    }

    /// A sentence with the next command to try; nothing if there are no dead letters.
    pub(crate) fn sentence(&self) -> Option<String> {
        let Self { container, processor, count, more } = self;
        let at_least = if *more { "at least " } else { "" };
        (!self.is_none()).then(|| {
            format!(
                "{at_least}{} in {container}: see `changefeed dead-letters list --dead-letters {container} --processor \
                 {processor}`",
                count_of_letters(*count)
            )
        })
    }
}

fn shown<S: serde::Serializer>(name: &ContainerName, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.collect_str(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_the_next_command_and_says_if_not_all_were_counted() {
        let sentence = |count, more| {
            let container = "shop/rejected".parse().unwrap();
            LetterCount { container, processor: "mailer".to_owned(), count, more }.sentence()
        };
        assert_eq!(sentence(0, false), None);
        let command = "see `changefeed dead-letters list --dead-letters shop/rejected --processor mailer`";
        assert_eq!(sentence(1, false), Some(format!("1 dead letter in shop/rejected: {command}")));
        assert_eq!(sentence(1000, true), Some(format!("at least 1000 dead letters in shop/rejected: {command}")));
    }
}
