//! Writes of leases and dead letters that fail, or whose answer is lost: nothing is lost, order is kept, a checkpoint is
//! neither repeated nor forgotten, and what is to be deleted is deleted.

use std::collections::BTreeMap;

use azure_data_cosmos::fault_injection::{FaultInjectionErrorType as Error, FaultOperationType as Operation};
use changefeed::{Context, DeadLetter, DeadLetters, DelegateError, RawChanges, core::Effect};
use serde_json::Value;

use crate::shop::{FAULTS, Seen, Shop, rule, until};

/// The positions of all leases.
async fn positions(shop: &Shop) -> BTreeMap<String, String> {
    let documents = shop.leases.list("mailer").await.unwrap();
    let documents = documents.iter().map(|item| item.parse::<Value>().unwrap());
    let position = |lease: Value| {
        Some((lease["LeaseToken"].as_str()?.to_owned(), lease["ContinuationToken"].as_str()?.to_owned()))
    };
    documents.filter_map(position).collect()
}

/// Two hosts, one after the other: what the first one has stored is where the second one begins.
async fn delivers_everything_once_and_in_order(error: Error, operation: Operation, hits: u32) {
    let fault = rule(error, operation, "leases", hits);
    let (shop, seen) = (Shop::with_faults(2, vec![fault.clone()]).await, Seen::default());
    shop.write(0..30, 1).await;
    let running = shop.host("a", &seen).await;
    until("delivery", || seen.distinct() >= 30).await;
    shop.write(30..60, 1).await;
    until("delivery", || seen.distinct() >= 60).await;
    until("the faults", || fault.hit_count() >= hits).await;
    running.stop().await.unwrap();
    let stored = positions(&shop).await;
    assert_eq!(stored.len(), 2, "{error:?} {operation:?}: {stored:?}");
    let running = shop.host("b", &seen).await;
    shop.write(60..80, 1).await;
    until("delivery", || seen.distinct() >= 80).await;
    running.stop().await.unwrap();
    let mut ids: Vec<u32> = seen.ids().iter().map(|id| id.parse().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..80).collect::<Vec<_>>(), "{error:?} {operation:?}: everything, and nothing twice");
    seen.in_order_and_once();
    assert!(positions(&shop).await.iter().any(|(token, position)| stored[token] != *position), "it moved on");
}

#[tokio::test]
async fn leases_are_created_although_requests_fail() {
    for error in FAULTS {
        delivers_everything_once_and_in_order(error, Operation::CreateItem, 2).await;
    }
}

#[tokio::test]
async fn checkpoints_are_stored_although_requests_fail() {
    for error in FAULTS {
        delivers_everything_once_and_in_order(error, Operation::ReplaceItem, 3).await;
    }
}

/// The lease of the parent goes once its children have theirs, and is not taken up again.
#[tokio::test]
async fn the_lease_of_a_split_range_is_deleted_although_requests_fail() {
    for error in FAULTS {
        let fault = rule(error, Operation::DeleteItem, "leases", 1);
        fault.disable();
        let (shop, seen) = (Shop::with_faults(1, vec![fault.clone()]).await, Seen::default());
        let running = shop.host("a", &seen).await;
        shop.write(0..30, 1).await;
        until("delivery", || seen.distinct() >= 30).await;
        fault.enable();
        shop.split(0).await;
        shop.write(30..60, 1).await;
        until("delivery", || seen.distinct() >= 60).await;
        until("two leases", || seen.leases() == 2).await;
        until("the fault", || fault.hit_count() >= 1).await;
        running.stop().await.unwrap();
        let tokens: Vec<String> = positions(&shop).await.into_keys().collect();
        assert_eq!(tokens, ["1", "2"], "{error:?}");
        assert_eq!((seen.len(), seen.distinct()), (60, 60), "{error:?}");
        seen.in_order_and_once();
    }
}

#[tokio::test]
async fn an_item_is_one_dead_letter_although_requests_fail() {
    for error in FAULTS {
        let faults =
            [Operation::UpsertItem, Operation::DeleteItem].map(|operation| rule(error, operation, "rejected", 1));
        let (shop, seen) = (Shop::with_faults(1, Vec::new()).await, Seen::default());
        let rejected = shop.create_container_with_faults("rejected", faults.to_vec()).await;
        shop.write(0..10, 1).await;
        let own = seen.clone();
        let processor = shop.builder("a").dead_letter(DeadLetter::to(&rejected).after_attempts(1));
        let processor = processor.build(move |changes: RawChanges, context: Context| {
            let poison = changes.iter().position(|change| change.id.as_str() == "4");
            own.note(&changes.slice(0..poison.unwrap_or(changes.len())), &context);
            async move { poison.map_or(Ok(()), |index| Err(DelegateError::new("poison").at(index))) }
        });
        let running = processor.unwrap().start().await.unwrap();
        until("delivery of the others", || seen.distinct() >= 9).await;
        running.stop().await.unwrap();
        let letters = DeadLetters::new(&rejected);
        let items: Vec<String> =
            letters.list().await.unwrap().iter().map(|letter| letter.item_id.to_string()).collect();
        assert_eq!(items, ["4"], "{error:?}");
        // An outcome that is not known is reported, and the next redrive finds it out.
        if let Err(unknown) = letters.redrive().to_delegate(|_| async { Ok(()) }).await {
            assert_eq!(unknown.effect(), Effect::Unknown, "{error:?}: {unknown:?}");
            letters.redrive().to_delegate(|_| async { Ok(()) }).await.unwrap();
        }
        assert_eq!(letters.summary().await.unwrap().total, 0, "{error:?}");
        assert!(faults.iter().all(|fault| fault.hit_count() == 1), "{error:?}: {faults:?}");
    }
}
