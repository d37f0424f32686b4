//! The model store passes the whole suite, however it uses the freedoms of the contract.

use changefeed_testkit::model::{ModelFixture, Variant};

fn cutting() -> ModelFixture {
    ModelFixture::with_variant(Variant::CutsOversizedTransactions)
}

fn within_keys_only() -> ModelFixture {
    ModelFixture::with_variant(Variant::OrdersWithinKeysOnly)
}

mod plain {
    changefeed_testkit::conformance!(super::ModelFixture::new);
}

mod cuts_oversized_transactions {
    changefeed_testkit::conformance!(super::cutting);
}

mod orders_within_keys_only {
    changefeed_testkit::conformance!(super::within_keys_only);
}
