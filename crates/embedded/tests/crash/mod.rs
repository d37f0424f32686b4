//! What the tests of crashes share: a script of writes, a ledger of what was acknowledged, and a judge who compares
//! the ledger with what a store shows after it was opened again.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "every test binary uses a part of this")]

pub mod judge;
pub mod ledger;
pub mod rng;
pub mod script;

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

/// The result of a future of a store without threads, which never has to wait.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a store without threads made its caller wait"),
    }
}
