//! Names of headers beyond those of HTTP.

use hyper::header::HeaderName;

macro_rules! names {
    ($($name:ident = $text:literal;)*) => {
        $(pub(crate) static $name: HeaderName = HeaderName::from_static($text);)*
    };
}

names! {
    A_IM = "a-im";
    ACTIVITY_ID = "x-ms-activity-id";
    ALT_CONTENT_PATH = "x-ms-alt-content-path";
    AUTOPILOT = "x-ms-cosmos-offer-autopilot-settings";
    BATCH_ATOMIC = "x-ms-cosmos-batch-atomic";
    BATCH_CONTINUE = "x-ms-cosmos-batch-continue-on-error";
    CONTENT_PATH = "x-ms-content-path";
    CONTINUATION = "x-ms-continuation";
    END_EPK = "x-ms-end-epk";
    INTENDED_COLLECTION = "x-ms-cosmos-intended-collection-rid";
    IS_BATCH = "x-ms-cosmos-is-batch-request";
    IS_QUERY = "x-ms-documentdb-isquery";
    IS_QUERY_PLAN = "x-ms-cosmos-is-query-plan-request";
    IS_UPSERT = "x-ms-documentdb-is-upsert";
    ITEM_COUNT = "x-ms-item-count";
    ITEM_LSN = "x-ms-item-lsn";
    LSN = "lsn";
    MAX_ITEM_COUNT = "x-ms-max-item-count";
    MS_DATE = "x-ms-date";
    NOT_ACTED_ON = "x-changefeed-not-acted-on";
    OFFER_THROUGHPUT = "x-ms-offer-throughput";
    PARTITION_KEY = "x-ms-documentdb-partitionkey";
    POST_TRIGGERS = "x-ms-documentdb-post-trigger-include";
    PREFER = "prefer";
    PRE_TRIGGERS = "x-ms-documentdb-pre-trigger-include";
    QUERY_FEATURES = "x-ms-cosmos-supported-query-features";
    RANGE_ID = "x-ms-documentdb-partitionkeyrangeid";
    READ_KEY_TYPE = "x-ms-read-key-type";
    REQUEST_CHARGE = "x-ms-request-charge";
    RETRY_AFTER_MS = "x-ms-retry-after-ms";
    SESSION_TOKEN = "x-ms-session-token";
    START_EPK = "x-ms-start-epk";
    SUBSTATUS = "x-ms-substatus";
    VERSION = "x-ms-version";
    WIRE_FORMAT = "x-ms-cosmos-changefeed-wire-format-version";
}
