//! The options of a processor, from the command line to the builder.

use changefeed::{Checkpoint, DeadLetter, LeaseTiming, Processor, ProcessorBuilder};
use changefeed_core::{Container, StartFrom};

use crate::args::OptionArgs;

/// A builder with what was given; the rest stays as the library has it.
pub(super) fn apply(args: &OptionArgs, name: &str, monitored: &Container, leases: &Container) -> ProcessorBuilder {
    let mut builder = Processor::builder(name, monitored, leases)
        .start_from(StartFrom::from(args.from))
        .lease_timing(timing(args, LeaseTiming::for_container(leases)));
    macro_rules! given {
        ($($option:ident => $setter:ident),* $(,)?) => {
            $(if let Some(value) = args.$option.clone() {
                builder = builder.$setter(value);
            })*
        };
    }
    given! {
        instance => instance_name,
        max_items => max_items,
        max_leases => max_leases,
        max_concurrent_calls => max_concurrent_calls,
        max_bytes_in_flight => max_bytes_in_flight,
        max_request_units_per_second => max_request_units_per_second,
        poll_interval => poll_interval,
        read_timeout => read_timeout,
        delegate_timeout => delegate_timeout,
        slow_after => slow_after,
        stalled_after => stalled_after,
        stop_deadline => stop_deadline,
        steal_after => steal_after,
    }
    if let Some(interval) = args.checkpoint_every {
        builder = builder.checkpoint(Checkpoint::Every(interval));
    }
    builder
}

/// Dead letters go to `container`.
pub(super) fn dead_letter(args: &OptionArgs, container: &Container) -> DeadLetter {
    let mut dead_letter = DeadLetter::to(container);
    if let Some(attempts) = args.dead_letter_after {
        dead_letter = dead_letter.after_attempts(attempts);
    }
    if let Some(time) = args.dead_letter_ttl {
        dead_letter = dead_letter.time_to_live(time);
    }
    dead_letter
}

fn timing(args: &OptionArgs, mut timing: LeaseTiming) -> LeaseTiming {
    timing.acquire = args.acquire_interval.unwrap_or(timing.acquire);
    timing.renew = args.renew_interval.unwrap_or(timing.renew);
    timing.expiration = args.expiration.unwrap_or(timing.expiration);
    timing
}

#[cfg(test)]
mod tests {
    use changefeed_embedded::Engine;
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command};

    #[tokio::test]
    async fn the_limit_of_request_units_reaches_the_processor() {
        // Only Azure Cosmos DB charges request units: no store of ours shows the effect.
        let line = "changefeed run mailer --store memory --container a/b --leases a/l --print";
        let engine = Engine::in_memory().unwrap();
        let container = engine.database("a").container("b").create().await.unwrap();
        let options = |more: &str| {
            let args = Args::parse_from(format!("{line}{more}").split(' '));
            let Command::Run(args) = args.command else { panic!("{line}") };
            format!("{:?}", apply(&args.options, "mailer", &container, &container))
        };
        assert!(options("").contains("max_request_units_per_second: None"), "{}", options(""));
        let limited = options(" --max-request-units-per-second 12.5");
        assert!(limited.contains("max_request_units_per_second: Some(12.5)"), "{limited}");
    }
}
