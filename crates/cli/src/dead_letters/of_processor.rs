//! The dead letters of a processor, for commands that look there too: hosts store the name of the container nowhere.

use changefeed::{DeadLetterDocument, DeadLetters};
use changefeed_core::PartitionKey;

use super::PAGE;
use crate::{
    args::{AlsoLettersArgs, ContainerName},
    exit::{Result, warn},
    processor_stores::ProcessorStores,
};

/// Those in the container that the arguments name. If it is not there, a warning says that they are not `counted`, or whatever
/// they are needed for: hosts create it when they start.
pub(super) async fn of_processor<'a>(
    args: &'a AlsoLettersArgs,
    on: &ProcessorStores,
    counted: &str,
) -> Result<Option<(&'a ContainerName, DeadLetters)>> {
    let Some(name) = &args.dead_letters else { return Ok(None) };
    let Some(container) = on.store.container_if_any(name).await? else {
        warn(&format!("dead letters are not {counted}: {}", on.store.unknown(name).await?));
        return Ok(None);
    };
    Ok(Some((name, DeadLetters::new(&container).processor(&on.name))))
}

/// Those of one item; none if nobody says where they are.
pub(crate) async fn letters_of_item(
    args: &AlsoLettersArgs,
    on: &ProcessorStores,
    item: &str,
    key: &PartitionKey,
) -> Result<Option<Vec<DeadLetterDocument>>> {
    let Some((_, letters)) = of_processor(args, on, "searched").await? else { return Ok(None) };
    // Letters of older versions do not say their key.
    let is_meant = |letter: &DeadLetterDocument| {
        letter.item_id == *item && letter.item_key.as_ref().is_none_or(|found| found == key)
    };
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        // Page by page: there may be more than fit into memory.
        let page = letters.page(after.as_deref(), PAGE).await?;
        found.extend(page.letters.into_iter().filter(is_meant));
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(Some(found)),
        }
    }
}
