//! The options of a processor, from the command line to the builder.

use changefeed::{Checkpoint, DeadLetter, LeaseTiming, Processor, ProcessorBuilder};
use changefeed_core::{Container, Error, ErrorKind, StartFrom};

use crate::{
    args::{Moment, OptionArgs},
    exit,
};

/// Setters of the builder, and words of its errors, that have another name on the command line. Any other setter is an
/// option with dashes.
const WORDS: [(&str, &str); 13] = [
    (
        "Checkpoint::Every must be longer than 0: use Checkpoint::Automatic",
        "--checkpoint-every must be longer than 0: leave it out",
    ),
    ("acquire and renew intervals", "--acquire-interval and --renew-interval"),
    ("the acquire interval", "--acquire-interval"),
    ("the renew interval", "--renew-interval"),
    ("the expiration interval", "--expiration"),
    ("the poll interval", "--poll-interval"),
    ("the delegate timeout", "--delegate-timeout"),
    ("the stop deadline", "--stop-deadline"),
    ("the instance name", "--instance"),
    ("start_from", "--from"),
    ("pass another container for the leases", "pass another container to --leases"),
    ("pass another container for the dead letters", "pass another container to --dead-letters"),
    ("max_request_units_per_second", "--max-request-units-per-second"),
];

/// An error of the builder that names options instead of setters.
pub(super) fn with_option_names(error: Error) -> exit::Error {
    if error.kind() != ErrorKind::InvalidArgument {
        return error.into();
    }
    let message = WORDS.iter().fold(error.message().to_owned(), |text, (from, to)| text.replace(from, to));
    let setters = [
        "max_items",
        "max_leases",
        "max_concurrent_calls",
        "max_bytes_in_flight",
        "slow_after",
        "stalled_after",
        "steal_after",
    ];
    let option = |name: &str| format!("--{}", name.replace('_', "-"));
    setters.into_iter().fold(message, |text, name| text.replace(name, &option(name))).into()
}

/// A builder with what was given; the rest stays as the library has it.
pub(super) fn apply(
    args: &OptionArgs,
    name: &str,
    monitored: &Container,
    leases: &Container,
    default_timing: LeaseTiming,
) -> ProcessorBuilder {
    let mut builder = Processor::builder(name, monitored, leases)
        .start_from(StartFrom::from(args.from.unwrap_or(Moment::Now)))
        .lease_timing(timing(args, default_timing));
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
        start_timeout => start_timeout,
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
    if let Some(crashes) = args.dead_letter_after_crashes {
        dead_letter = dead_letter.after_crashes(crashes);
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

    fn parsed(more: &str) -> OptionArgs {
        let line = "changefeed run mailer --store memory --container a/b --leases a/l --print";
        let args = Args::parse_from(format!("{line}{more}").split(' '));
        let Command::Run(args) = args.command else { panic!("{more}") };
        args.options
    }

    async fn container() -> Container {
        Engine::in_memory().unwrap().database("a").container("b").create().await.unwrap()
    }

    async fn built(more: &str) -> String {
        let container = container().await;
        format!("{:?}", apply(&parsed(more), "mailer", &container, &container, LeaseTiming::EMBEDDED))
    }

    #[tokio::test]
    async fn the_limit_of_request_units_reaches_the_processor() {
        // Only Azure Cosmos DB charges request units: no store of ours shows the effect.
        let unlimited = built("").await;
        assert!(unlimited.contains("max_request_units_per_second: None"), "{unlimited}");
        let limited = built(" --max-request-units-per-second 12.5").await;
        assert!(limited.contains("max_request_units_per_second: Some(12.5)"), "{limited}");
    }

    #[tokio::test]
    async fn the_timeout_of_a_start_reaches_the_processor() {
        assert!(built("").await.contains("start_timeout: 10s"));
        let longer = built(" --start-timeout 2m").await;
        assert!(longer.contains("start_timeout: 120s"), "{longer}");
    }

    #[tokio::test]
    async fn crashes_before_a_dead_letter_reach_the_processor() {
        let container = container().await;
        let debug = |more| format!("{:?}", dead_letter(&parsed(more), &container));
        assert!(debug(" --dead-letters a/d").contains("crashes: 2"), "{}", debug(" --dead-letters a/d"));
        assert!(debug(" --dead-letters a/d --dead-letter-after-crashes 4").contains("crashes: 4"));
    }
}
