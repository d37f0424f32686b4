//! The SQL of Cosmos DB, as far as its SDKs and change feed processors need it.
