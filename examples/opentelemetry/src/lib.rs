#![doc = include_str!("../../../docs/metrics.md")]
