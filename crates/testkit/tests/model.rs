//! The model store passes the whole suite.

use changefeed_testkit::model::ModelFixture;

changefeed_testkit::conformance!(ModelFixture::new);
