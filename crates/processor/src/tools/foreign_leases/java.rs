//! Leases as the Java SDK writes them (azure-cosmos 4): with the raw ETag, or with a state in base64.

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use changefeed_core::{FeedRange, Mode, Timestamp};
use serde::Deserialize;

use crate::lease::document::{JavaDialect, StartPosition};

/// Java writes padded, URL-safe base64.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A lease of a Java host.
pub(super) struct JavaLease {
    pub(super) id: String,
    pub(super) token: String,
    pub(super) owner: Option<String>,
    pub(super) mode: Mode,
    /// None for a lease of a physical range.
    pub(super) range: Option<FeedRange>,
    /// Where it goes on or begins; none if that was left to the start of the processor.
    pub(super) start: Option<StartPosition>,
}

#[derive(Deserialize)]
struct Document {
    id: String,
    #[serde(rename = "LeaseToken")]
    token: String,
    #[serde(rename = "ContinuationToken")]
    continuation: Option<String>,
    #[serde(rename = "Owner")]
    owner: Option<String>,
    #[serde(rename = "feedRange")]
    range: Option<FeedRange>,
}

/// The state inside of a continuation of a feed-range lease.
#[derive(Deserialize)]
struct State {
    #[serde(rename = "V")]
    version: u32,
    #[serde(rename = "Mode")]
    mode: String,
    #[serde(rename = "StartFrom")]
    start: Start,
    #[serde(rename = "Continuation")]
    continuation: Option<Positions>,
}

#[derive(Deserialize)]
struct Start {
    #[serde(rename = "Type")]
    kind: String,
    #[serde(rename = "PointInTimeMs")]
    time: Option<u64>,
    #[serde(rename = "Etag")]
    etag: Option<String>,
}

#[derive(Deserialize)]
struct Positions {
    #[serde(rename = "Continuation")]
    entries: Vec<Position>,
}

#[derive(Deserialize)]
struct Position {
    token: Option<String>,
}

impl JavaLease {
    /// Reads a document; an error says what is wrong with it.
    pub(super) fn parse(body: &[u8], dialect: JavaDialect) -> Result<Self, String> {
        let document: Document = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let owner = document.owner.filter(|owner| !owner.is_empty());
        let text = document.continuation.filter(|text| !text.is_empty());
        let Document { id, token, range, .. } = document;
        if dialect == JavaDialect::PhysicalRanges {
            let start = text.map(StartPosition::Continuation);
            return Ok(Self { id, token, owner, mode: Mode::LatestVersion, range: None, start });
        }
        let range = match range {
            Some(range) => range,
            None => token.parse().map_err(|_| "it has no feedRange, and LeaseToken is not min-max".to_owned())?,
        };
        let (mode, start) = match text {
            Some(text) => position(&text)?,
            None => (Mode::LatestVersion, None),
        };
        Ok(Self { id, token, owner, mode, range: Some(range), start })
    }
}

/// Mode and position of a state in base64.
fn position(text: &str) -> Result<(Mode, Option<StartPosition>), String> {
    let json = BASE64.decode(text).map_err(|error| format!("its ContinuationToken is not base64: {error}"))?;
    let state: State = serde_json::from_slice(&json)
        .map_err(|error| format!("its ContinuationToken is not a state of the Java SDK: {error}"))?;
    if state.version != 1 {
        return Err(format!("its ContinuationToken has version {}, and 1 is known", state.version));
    }
    let mode = match state.mode.to_ascii_uppercase().as_str() {
        "INCREMENTAL" => Mode::LatestVersion,
        "FULL_FIDELITY" => Mode::AllVersions,
        other => return Err(format!("its mode {other:?} is not known")),
    };
    let entries = state.continuation.map(|positions| positions.entries).unwrap_or_default();
    if entries.len() > 1 {
        return Err(format!("its ContinuationToken has {} positions, and a lease has one", entries.len()));
    }
    match entries.into_iter().next().and_then(|entry| entry.token) {
        Some(etag) => Ok((mode, Some(StartPosition::Continuation(etag)))),
        None => Ok((mode, start(&state.start)?)),
    }
}

/// Where a lease begins that has not read anything. Now is not a position: it moves.
fn start(start: &Start) -> Result<Option<StartPosition>, String> {
    match (start.kind.to_ascii_uppercase().as_str(), start.time, &start.etag) {
        ("BEGINNING", ..) => Ok(Some(StartPosition::Beginning)),
        ("POINT_IN_TIME", Some(millis), _) => Ok(Some(StartPosition::Time(Timestamp::from_millis(millis)))),
        ("LEASE", _, Some(etag)) => Ok(Some(StartPosition::Continuation(etag.clone()))),
        ("NOW" | "LEGACY_CHECKPOINT", ..) => Ok(None),
        (kind, ..) => Err(format!("its start {kind:?} is not known")),
    }
}
