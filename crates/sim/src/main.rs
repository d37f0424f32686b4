//! `changefeed-sim`: runs seeds and says which broke a promise.
#![allow(clippy::print_stdout, reason = "the report is the program's output")]

use changefeed_sim::{run::run, scenario::Scenario};

fn main() {
    let mut args = std::env::args().skip(1);
    let first = args.next().and_then(|a| a.parse().ok()).unwrap_or(0);
    let last = args.next().and_then(|a| a.parse().ok()).unwrap_or(first + 1);
    for seed in first..last {
        let scenario = Scenario::from_seed(seed);
        let outcome = run(&scenario, None, last - first == 1);
        println!("{seed}: {:?} {:x} {} events {} s", outcome.violation.as_ref().map(ToString::to_string), outcome.trace.digest(), outcome.trace.events(), outcome.simulated/1_000_000);
        if last - first == 1 { println!("{}", outcome.trace.into_text()); }
    }
}
