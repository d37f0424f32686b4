//! All versions and deletes on an account with continuous backup: its containers have no retention of their own, so what
//! the service says decides what is wrong.

use std::sync::Arc;

use changefeed_core::{
    ContainerSpec, Continuation, ErrorKind, FeedRange, Mode, PartitionKeyDefinition, ReadChanges, StartFrom,
};

use crate::{
    proxy::{Answering, Rules, refusal},
    stage::Stage,
    support::{connect, on_sdk},
};

const NOT_ENABLED: &str = "Change Feed 'All Versions and Deletes' mode must be enabled. Refer to \
    https://aka.ms/ChangeFeed-AllVersionsAndDeletes for Preview program.";

/// Refuses all reads of all versions with this text.
fn refusing(text: &'static str) -> Rules {
    let answering: Answering = Arc::new(move |asked| {
        let is_read = asked.header("a-im") == Some("Full-Fidelity Feed");
        is_read.then(|| refusal(400, 0, text))
    });
    Rules { answering: Some(answering), ..Rules::default() }
}

#[tokio::test]
async fn a_refused_read_of_all_versions_is_explained_by_its_text() {
    let after = || StartFrom::from(Continuation::from_token("\"7\""));
    let table = [
        (NOT_ENABLED, StartFrom::Now, ErrorKind::Unsupported, "turn on all versions"),
        (NOT_ENABLED, after(), ErrorKind::Unsupported, "turn on all versions"),
        (
            "the position is older than the retention",
            after(),
            ErrorKind::ContinuationExpired,
            "have left the retention",
        ),
        ("the continuation has expired", after(), ErrorKind::ContinuationExpired, "have left the retention"),
        ("the input is not valid", after(), ErrorKind::BadContinuation, "has no retention of its own"),
        ("the input is not valid", StartFrom::Now, ErrorKind::InvalidArgument, "has no retention of its own"),
    ];
    for (text, start, kind, says) in table {
        let stage = Stage::new(refusing(text)).await;
        let spec = ContainerSpec::new("backed-up", PartitionKeyDefinition::hash("/customer").unwrap());
        stage.create_as(spec).await;
        let orders = stage.open("backed-up").await;
        let request = ReadChanges::new(FeedRange::full(), start.clone()).mode(Mode::AllVersions);
        let failed = orders.read_changes(request).await.unwrap_err();
        assert_eq!(failed.kind(), kind, "{text} {start:?}: {failed:?}");
        assert!(failed.message().contains(says), "{text} {start:?}: {failed:?}");
    }
}

#[tokio::test]
async fn a_container_with_its_own_retention_gets_no_hint_about_it() {
    let stage = Stage::new(refusing("the input is not valid")).await;
    let request = ReadChanges::new(FeedRange::full(), Continuation::from_token("\"7\"")).mode(Mode::AllVersions);
    let failed = stage.open("orders").await.read_changes(request).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::BadContinuation);
    assert!(!failed.message().contains("retention"), "{failed:?}");
}

#[tokio::test]
async fn a_retention_that_the_account_refuses_is_explained() {
    let text = "The retention duration in the Change Feed policy should not be set when continuous backup mode is \
                enabled for the database account";
    let answering: Answering = Arc::new(|asked| asked.creates_container().then(|| refusal(400, 0, text)));
    let stage = Stage::new(Rules { answering: Some(answering), ..Rules::default() }).await;
    let account = connect(stage.gateway.endpoint()).await;
    let mut spec = ContainerSpec::new("backed-up", PartitionKeyDefinition::hash("/customer").unwrap());
    spec.all_versions_retention = Some(std::time::Duration::from_secs(3600));
    let failed = on_sdk(async move { account.catalog().create_container("shop", spec).await }).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::InvalidArgument);
    assert!(failed.message().contains("takes no retention of a container: leave it out"), "{failed:?}");
}
