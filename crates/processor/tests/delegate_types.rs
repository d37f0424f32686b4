//! What a delegate may return: each variant that the documentation shows compiles, and its error keeps its type.

mod shop;

use std::{error::Error as StdError, fmt, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow, bail, ensure};
use changefeed::{
    BatchResult, Changes, Context, DelegateError, Failure, ItemResult, ManualContext, RawChanges, delegate_fn,
};
use parking_lot::Mutex;
use shop::{Order, Shop, until};

/// An error type of the user's own.
#[derive(Debug, PartialEq)]
struct Refused(u32);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused with {}", self.0)
    }
}

impl StdError for Refused {}

fn charge(order: &Order) -> Result<(), Refused> {
    if order.version == 0 { Err(Refused(402)) } else { Ok(()) }
}

fn charge_anyhow(order: &Order) -> anyhow::Result<()> {
    charge(order).with_context(|| format!("charge order {}", order.id))
}

async fn own_error(orders: Changes<Order>, _ctx: Context) -> Result<(), Refused> {
    orders.iter().try_for_each(charge)
}

async fn anyhow_error(orders: Changes<Order>, _ctx: Context) -> anyhow::Result<()> {
    for order in &orders {
        ensure!(order.version < 1000, "version {} is too high", order.version);
        charge_anyhow(order)?;
    }
    Ok(())
}

async fn boxed_error(_: RawChanges, _ctx: Context) -> Result<(), Box<dyn StdError + Send + Sync>> {
    Err("no answer")?;
    Ok(())
}

async fn text(_: RawChanges, _ctx: Context) -> Result<(), String> {
    Err("no answer".to_owned())
}

async fn delegate_error(orders: Changes<Order>, _ctx: Context) -> Result<(), DelegateError> {
    orders.iter().try_for_each(charge_anyhow)?;
    Ok(())
}

async fn results(orders: Changes<Order>, _ctx: Context) -> anyhow::Result<Vec<ItemResult>> {
    Ok(orders.iter().map(|_| ItemResult::Done).collect())
}

async fn batch_result(orders: Changes<Order>, _ctx: Context) -> anyhow::Result<BatchResult> {
    match orders.len() {
        0 => bail!("an empty batch"),
        1 => Ok(BatchResult::Done),
        _ => Ok(BatchResult::Each(vec![ItemResult::Retry { after: Duration::from_secs(1) }])),
    }
}

async fn manual(orders: Changes<Order>, ctx: ManualContext) -> anyhow::Result<()> {
    orders.iter().try_for_each(charge_anyhow)?;
    ctx.checkpoint().await?;
    Ok(())
}

#[tokio::test]
async fn functions_with_any_error_type_become_delegates() {
    let shop = Shop::new(1).await;
    let builder = || shop.processor("worker-1");
    builder().build(delegate_fn(own_error)).expect("an error type of one's own");
    builder().build(delegate_fn(anyhow_error)).expect("anyhow");
    builder().build(delegate_fn(boxed_error)).expect("a boxed error");
    builder().build(delegate_fn(text)).expect("a text");
    builder().build(delegate_fn(delegate_error)).expect("a DelegateError");
    builder().build(delegate_error).expect("a DelegateError needs no delegate_fn");
    builder().build(delegate_fn(results)).expect("results");
    builder().build(delegate_fn(batch_result)).expect("a BatchResult");
    builder().manual_checkpoints().build(delegate_fn(manual)).expect("manual checkpoints");
}

#[tokio::test]
async fn closures_need_no_type_annotation_for_their_errors() {
    let shop = Shop::new(1).await;
    let builder = || shop.processor("worker-1");
    let closure = |orders: Changes<Order>, _ctx: Context| async move {
        for order in &orders {
            charge(order)?;
            charge_anyhow(order)?;
            "7".parse::<u32>().context("parse")?;
        }
        Ok(())
    };
    builder().build(closure).expect("? on several error types");
    let returns = |orders: Changes<Order>, _: Context| async move {
        if orders.is_empty() {
            return Err(anyhow!("an empty batch").into());
        }
        if orders.len() > 1000 {
            Err(anyhow!("a batch of {}", orders.len()))?;
        }
        Ok(())
    };
    builder().build(returns).expect("errors of anyhow without bail");
    let bails = |orders: Changes<Order>, _: Context| async move {
        if orders.is_empty() {
            bail!("an empty batch");
        }
        charge_anyhow(orders.iter().next().context("an order")?)?;
        Ok(())
    };
    builder().build(delegate_fn(bails)).expect("bail");
    let annotated = |orders: Changes<Order>, _: Context| async move {
        charge_anyhow(orders.iter().next().context("an order")?)?;
        anyhow::Ok(())
    };
    builder().build(delegate_fn(annotated)).expect("an error type by anyhow::Ok");
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_function_keeps_its_type_and_causes() {
    let shop = Shop::new(1).await;
    shop.write(0..1, 0).await;
    let failures: Arc<Mutex<Vec<Arc<DelegateError>>>> = Arc::default();
    let kept = Arc::clone(&failures);
    let builder = shop.processor("worker-1").on_error(move |report| {
        if let Failure::Delegate(error) = &report.failure {
            kept.lock().push(Arc::clone(error));
        }
    });
    let running = builder.build(delegate_fn(anyhow_error)).expect("build").start().await.expect("start");
    until("a failure", || !failures.lock().is_empty()).await;
    running.stop().await.expect("stop");
    let error = Arc::clone(&failures.lock()[0]);
    assert_eq!(error.downcast_ref(), Some(&Refused(402)));
    assert_eq!(error.chain().collect::<Vec<_>>(), ["charge order o0", "refused with 402"]);
}
