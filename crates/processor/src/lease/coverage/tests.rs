//! Tables, and random histories of splits, merges, crashes and hosts that decide on old snapshots.

use changefeed_core::{RangeId, check_tiling};

use super::*;

fn range(text: &str) -> FeedRange {
    text.parse().unwrap()
}

/// `7:20-30` is the physical range 7.
fn physical(text: &str) -> PhysicalRange {
    let (id, bounds) = text.split_once(':').unwrap();
    PhysicalRange { id: id.parse().unwrap(), range: range(bounds), parents: vec![] }
}

fn live(texts: &[&str]) -> Vec<PhysicalRange> {
    texts.iter().map(|text| physical(text)).collect()
}

/// `7:20-30` is a version 0 lease, `20-30` a version 1 lease, with a `!` in front a tombstone.
fn lease(text: &str) -> RangeLease {
    let (text, gone) = text.strip_prefix('!').map_or((text, false), |rest| (rest, true));
    let (token, bounds) = text.split_once(':').unwrap_or((text, text));
    RangeLease { token: token.parse().unwrap(), range: range(bounds), gone, generation: 0 }
}

fn leases(texts: &[&str]) -> Vec<RangeLease> {
    texts.iter().map(|text| lease(text)).collect()
}

/// Children in the same notation.
fn shown(children: &[NewLease]) -> Vec<String> {
    let one = |child: &NewLease| match child.version {
        LeaseVersion::Range => format!("{}:{}", child.token, child.range),
        LeaseVersion::FeedRange => child.token.to_string(),
    };
    children.iter().map(one).collect()
}

fn replaced(plan: SplitPlan) -> Option<Vec<String>> {
    match plan {
        SplitPlan::Keep => None,
        SplitPlan::Replace(children) => Some(shown(&children)),
    }
}

#[test]
fn an_audit_finds_holes_overlaps_and_parents_that_were_left_over() {
    let check = |texts: &[&str], holes: &[&str], overlaps: &[(&str, &str)], covered: &[&str]| {
        let audit = audit(&leases(texts));
        let pairs: Vec<_> = audit.overlaps.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let left_over: Vec<_> = audit.covered_by_others.iter().map(LeaseToken::as_str).collect();
        let found: Vec<_> = audit.holes.iter().map(ToString::to_string).collect();
        assert_eq!(
            (found.iter().map(String::as_str).collect::<Vec<_>>(), pairs, left_over),
            (holes.to_vec(), overlaps.to_vec(), covered.to_vec()),
            "{texts:?}"
        );
    };
    check(&["0:-FF"], &[], &[], &[]);
    check(&["1:10-FF", "-10"], &[], &[], &[]);
    check(&[], &["-FF"], &[], &[]);
    check(&["1:10-20", "3:30-FF"], &["-10", "20-30"], &[], &[]);
    check(&["0:-20", "1:20-FF", "!9:-FF"], &[], &[], &["9"]);
    check(&["!9:-20", "0:-30", "1:30-FF"], &[], &[], &["9"]);
    check(&["!0:-20", "1:20-FF"], &["-20"], &[], &[]);
    // A split half done, and done but for the delete.
    check(&["0:-FF", "1:-20"], &[], &[("1", "0")], &[]);
    check(&["0:-FF", "1:-20", "2:20-FF"], &[], &[("1", "0"), ("0", "2")], &["0"]);
    // Three generations: what covers a parent may itself be left over.
    check(
        &["0:-FF", "1:-20", "3:-10", "4:10-20", "2:20-FF"],
        &[],
        &[("3", "1"), ("3", "0"), ("1", "0"), ("1", "4"), ("0", "4"), ("0", "2")],
        &["1", "0"],
    );
    // A merge: the version 1 lease stays. Two version 0 leases: the split of one of them decides.
    check(&["0:-FF", "-FF"], &[], &[("-FF", "0")], &["0"]);
    check(&["0:-FF", "7:-FF"], &[], &[("0", "7")], &[]);
    // Leases that reach beyond each other are never given up for each other.
    check(&["0:-20", "10-30", "20-FF"], &[], &[("0", "10-30"), ("10-30", "20-FF")], &[]);
    // A lease twice, as old .NET hosts made them.
    check(&["0:-FF", "0:-FF"], &[], &[("0", "0")], &[]);
}

#[test]
fn successors_follow_the_rules_of_the_net_sdk() {
    for (case, parent, ranges, expected) in [
        ("split in two", "0:-FF", &["1:-20", "2:20-FF"][..], Some(&["1:-20", "2:20-FF"][..])),
        (
            "split in three",
            "5:20-80",
            &["0:-20", "7:60-80", "6:20-40", "8:40-60", "1:80-FF"],
            Some(&["6:20-40", "8:40-60", "7:60-80"]),
        ),
        ("merge with a neighbour", "0:-20", &["2:-FF"], Some(&["-20"])),
        ("replaced one to one", "0:-20", &["7:-20", "1:20-FF"], Some(&["-20"])),
        ("not gone at all", "0:-20", &["0:-20", "1:20-FF"], None),
        // .NET makes leases for whole ranges here, beyond the parent.
        (
            "split and merge together",
            "1:20-60",
            &["0:-20", "3:20-40", "4:40-80", "5:80-FF"],
            Some(&["3:20-40", "40-60"]),
        ),
        ("version 1 over three ranges", "AA-EE", &["0:-BB", "1:BB-DD", "2:DD-FF"], Some(&["AA-BB", "BB-DD", "DD-EE"])),
        ("version 1 over exactly two", "-FF", &["1:-20", "2:20-FF"], Some(&["-20", "20-FF"])),
        ("version 1 within one range", "AA-BB", &["0:-FF"], None),
        ("nothing live: better to wait than to guess", "0:-20", &[], None),
    ] {
        let parent = lease(parent);
        let plan = split_plan(&parent, &live(ranges), std::slice::from_ref(&parent));
        assert_eq!(replaced(plan), expected.map(|texts| texts.iter().map(ToString::to_string).collect()), "{case}");
    }
}

#[test]
fn children_that_exist_are_not_made_again() {
    for (case, parent, ranges, others, expected) in [
        ("one of two", "0:-FF", &["1:-20", "2:20-FF"][..], &["1:-20"][..], &["2:20-FF"][..]),
        ("all", "0:-FF", &["1:-20", "2:20-FF"], &["1:-20", "2:20-FF"], &[]),
        ("a child that has split again", "0:-FF", &["3:-10", "4:10-20", "2:20-FF"], &["1:-20"], &["2:20-FF"]),
        ("a grandchild", "0:-FF", &["1:-20", "2:20-FF"], &["3:-10", "2:20-FF"], &["10-20"]),
        ("a merge after half a split", "0:-FF", &["9:-FF"], &["1:-20"], &["20-FF"]),
        ("the merged lease itself", "0:-20", &["9:-FF"], &["-20"], &[]),
        ("a tombstone covers nothing", "0:-FF", &["1:-20", "2:20-FF"], &["!1:-20"], &["1:-20", "2:20-FF"]),
        // Neither a parent left over nor a lease that reaches beyond may stand in: it may count on this one.
        ("a left-over parent", "1:-20", &["3:-10", "4:10-20", "2:20-FF"], &["0:-FF"], &["3:-10", "4:10-20"]),
        ("a left-over duplicate", "-20", &["3:-10", "4:10-20", "2:20-FF"], &["0:-20"], &["-10", "10-20"]),
        ("two that cross", "-20", &["9:-FF"], &["10-FF"], &["-10", "10-20"]),
        ("two that cross, one done", "10-FF", &["9:-FF"], &["-10", "10-20"], &["20-FF"]),
        ("a split half done, then merged", "-FF", &["9:-FF"], &["-20"], &["20-FF"]),
        ("a live range with a lease inside", "9:-FF", &["9:-FF"], &["20-30"], &["-20", "30-FF"]),
        ("a live range and its duplicate", "9:-FF", &["9:-FF"], &["-FF"], &[]),
        ("a neighbour that reaches in", "1:-20", &["3:-10", "4:10-20", "2:20-FF"], &["10-30"], &["3:-10", "4:10-20"]),
    ] {
        let mut all = leases(others);
        all.push(lease(parent));
        let plan = split_plan(&lease(parent), &live(ranges), &all);
        assert_eq!(replaced(plan).unwrap(), expected, "{case}");
    }
}

#[test]
fn tombstones_and_parents_left_over_change_nothing_for_a_lease_that_can_go_on() {
    let kept = lease("10-20");
    let all = leases(&["10-20", "!15-30", "!12-14", "!10-20", "-30", "4:10-20"]);
    assert_eq!(split_plan(&kept, &live(&["9:-FF"]), &all), SplitPlan::Keep);
}

#[test]
fn missing_leases_are_those_of_uncovered_keys() {
    for (ranges, existing, expected) in [
        (&["1:20-FF", "0:-20"][..], &[][..], &["0:-20", "1:20-FF"][..]),
        (&["0:-20", "1:20-FF"], &["0:-20"], &["1:20-FF"]),
        (&["0:-20", "1:20-FF"], &["0:-20", "1:20-FF"], &[]),
        // The parent's lease covers its children: they come with its split, at its position.
        (&["1:-20", "2:20-FF"], &["0:-FF"], &[]),
        (&["2:-FF"], &["-20"], &["20-FF"]),
        (&["2:-FF"], &["10-20", "40-50"], &["-10", "20-40", "50-FF"]),
        (&["0:-20", "1:20-FF"], &["!0:-20", "1:20-FF"], &["0:-20"]),
        (&["0:-20", "1:20-FF"], &["10-30"], &["-10", "30-FF"]),
    ] {
        assert_eq!(shown(&missing(&live(ranges), &leases(existing))), expected, "{ranges:?} {existing:?}");
    }
}

/// SplitMix64: small, seeded, good enough for tests.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % end.max(1) as u64) as usize
    }
}

/// What a host has set out to do, one write at a time; it may die in between.
struct Job {
    create: Vec<NewLease>,
    delete: LeaseToken,
}

/// A container that splits and merges, and hosts that run splits on what they once saw.
struct Cluster {
    chance: Chance,
    live: Vec<PhysicalRange>,
    next_id: u64,
    leases: Vec<RangeLease>,
    jobs: Vec<Job>,
}

impl Cluster {
    fn new(seed: u64) -> Self {
        let live = live(&["0:-55", "1:55-AA", "2:AA-FF"]);
        let leases = missing(&live, &[]).iter().map(Self::covered).collect();
        Self { chance: Chance(seed), live, next_id: 3, leases, jobs: Vec::new() }
    }

    fn covered(child: &NewLease) -> RangeLease {
        RangeLease { token: child.token.clone(), range: child.range.clone(), gone: false, generation: 0 }
    }

    fn new_range(&mut self, range: FeedRange) {
        let id = RangeId::from(self.next_id);
        self.next_id += 1;
        self.live.push(PhysicalRange { id, range, parents: vec![] });
        self.live.sort_by(|a, b| a.range.cmp(&b.range));
    }

    fn split(&mut self) {
        let at = self.chance.below(self.live.len());
        let key = Epk::from_bytes(&[self.chance.below(255) as u8, self.chance.below(256) as u8]);
        if let Ok((low, high)) = self.live[at].range.split_at(&key) {
            self.live.remove(at);
            self.new_range(low);
            self.new_range(high);
        }
    }

    fn merge(&mut self) {
        if self.live.len() > 1 {
            let at = self.chance.below(self.live.len() - 1);
            let (low, high) = (self.live.remove(at).range, self.live.remove(at).range);
            let both = FeedRange::new(low.min_inclusive().clone(), high.max_exclusive().clone());
            self.new_range(both.unwrap());
        }
    }

    /// A host finds a range gone, or a parent left over, and decides.
    fn decide(&mut self) {
        let Some(parent) = self.leases.get(self.chance.below(self.leases.len())) else { return };
        if let SplitPlan::Replace(create) = split_plan(parent, &self.live, &self.leases) {
            for (at, child) in create.iter().enumerate() {
                assert!(parent.range.contains_range(&child.range));
                assert!(create.iter().skip(at + 1).all(|other| !other.range.overlaps(&child.range)));
            }
            self.jobs.push(Job { create, delete: parent.token.clone() });
        }
    }

    /// One write of one host.
    fn write(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        let at = self.chance.below(self.jobs.len());
        let job = &mut self.jobs[at];
        if job.create.is_empty() {
            let Job { delete, .. } = self.jobs.remove(at);
            self.leases.retain(|lease| lease.token != delete);
            return;
        }
        let child = job.create.remove(self.chance.below(job.create.len()));
        if !self.leases.iter().any(|lease| lease.token == child.token) {
            self.leases.push(Self::covered(&child));
        }
    }

    fn step(&mut self) {
        match self.chance.below(20) {
            0 => self.split(),
            1 => self.merge(),
            2..=6 => self.decide(),
            7 if !self.jobs.is_empty() => {
                let at = self.chance.below(self.jobs.len());
                self.jobs.swap_remove(at);
            }
            8 => self.delete_left_over(),
            _ => self.write(),
        }
        check_tiling(&self.live).unwrap();
        let holes = audit(&self.leases).holes;
        assert!(holes.is_empty(), "holes {holes:?}");
    }

    fn delete_left_over(&mut self) {
        let Audit { covered_by_others, .. } = audit(&self.leases);
        self.leases.retain(|lease| !covered_by_others.contains(&lease.token));
    }

    /// No more splits, no more crashes.
    fn quiet(&mut self) {
        self.jobs.clear();
        for _ in 0..400 {
            self.decide();
            while !self.jobs.is_empty() {
                self.write();
            }
            self.delete_left_over();
        }
    }
}

#[test]
fn leases_always_cover_every_key_whatever_splits_merges_and_crashes() {
    for seed in 0..300 {
        let mut cluster = Cluster::new(seed);
        for _ in 0..150 {
            cluster.step();
        }
    }
}

#[test]
fn when_splits_and_crashes_end_the_leases_tile_the_key_space_and_stay() {
    for seed in 0..60 {
        let mut cluster = Cluster::new(seed);
        for _ in 0..150 {
            cluster.step();
        }
        cluster.quiet();
        let audit = audit(&cluster.leases);
        assert!(audit.holes.is_empty() && audit.covered_by_others.is_empty(), "{audit:?}");
        assert!(audit.overlaps.is_empty(), "seed {seed}: {audit:?}\n{:?}\n{:?}", cluster.leases, cluster.live);
        for lease in &cluster.leases {
            assert_eq!(split_plan(lease, &cluster.live, &cluster.leases), SplitPlan::Keep);
        }
        assert_eq!(missing(&cluster.live, &cluster.leases), []);
    }
}

#[test]
fn a_split_repeated_after_a_crash_at_any_step_ends_the_same() {
    let ranges = live(&["1:-20", "2:20-80", "3:80-FF"]);
    let parent = lease("0:-FF");
    for crash_after in 0..=3 {
        for order in 0..6 {
            let mut found = vec![parent.clone()];
            let SplitPlan::Replace(mut first) = split_plan(&parent, &ranges, &found) else { panic!("kept") };
            first.rotate_left(order % 3);
            if order >= 3 {
                first.swap(0, 1);
            }
            found.extend(first.iter().take(crash_after).map(Cluster::covered));
            let SplitPlan::Replace(second) = split_plan(&parent, &ranges, &found) else { panic!("kept") };
            found.extend(second.iter().map(Cluster::covered));
            assert_eq!(audit(&found).covered_by_others, std::slice::from_ref(&parent.token));
            found.retain(|lease| lease.token != parent.token);
            assert_eq!((audit(&found), found.len()), (Audit::default(), 3));
        }
    }
}
