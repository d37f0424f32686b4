//! The code on the page docs/metrics.md, compiled as documentation tests.
#![doc = include_str!("../../../docs/metrics.md")]
