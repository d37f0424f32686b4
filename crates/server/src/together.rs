//! Several futures side by side in one task.

use std::{future::Future, task::Poll};

/// The outputs of all futures, in their order, when the last is ready.
pub(crate) async fn all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None::<F::Output>)).collect();
    std::future::poll_fn(|context| {
        let mut is_done = true;
        for (future, output) in running.iter_mut().filter(|(_, output)| output.is_none()) {
            match future.as_mut().poll(context) {
                Poll::Ready(ready) => *output = Some(ready),
                Poll::Pending => is_done = false,
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn futures_that_wait_for_each_other_all_end_and_keep_their_order() {
        let semaphore = Semaphore::new(0);
        let wait = async |number: u32| {
            if number == 2 {
                semaphore.add_permits(2);
            } else {
                semaphore.acquire().await.unwrap().forget();
            }
            number
        };
        assert_eq!(all([wait(0), wait(1), wait(2)]).await, [0, 1, 2]);
        assert!(all(Vec::<std::future::Ready<u8>>::new()).await.is_empty());
    }
}
