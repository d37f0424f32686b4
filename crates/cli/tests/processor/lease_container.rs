//! Lease containers that cannot hold leases.

use changefeed::{
    Context, Processor, RawChanges,
    core::{ErrorKind, TimeToLive},
};

use crate::shop::{Shop, TIMING};

/// It was opened as any other container: only the processor knows that it is for leases.
#[tokio::test]
async fn leases_in_a_container_that_deletes_items_are_refused() {
    let shop = Shop::new(1).await;
    let mortal = shop.database().container("mortal").time_to_live(TimeToLive::Seconds(3600)).create().await.unwrap();
    let builder = Processor::builder("mailer", &shop.orders, &mortal).lease_timing(TIMING);
    let processor = builder.build(|_: RawChanges, _: Context| async { Ok(()) }).unwrap();
    let error = processor.start().await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("container shop/mortal deletes items after 3600 s (defaultTtl)"), "{error}");
    assert_eq!(mortal.list("").await.unwrap(), []);
}
