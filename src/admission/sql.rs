//! The gate's statements over this object's storage.

use ringfence_core::admission;
use serde::de::DeserializeOwned;

use crate::sql::{Bind, Sql, StoreError};

impl admission::Sql for Sql {
    type Error = StoreError;

    fn run(&self, query: &str, binds: &[admission::Bind<'_>]) -> Result<(), StoreError> {
        Self::run(self, query, binds.iter().map(bind))
    }

    fn rows<T: DeserializeOwned>(
        &self,
        query: &str,
        binds: &[admission::Bind<'_>],
    ) -> Result<Vec<T>, StoreError> {
        Self::rows(self, query, binds.iter().map(bind))
    }
}

fn bind<'a>(value: &admission::Bind<'a>) -> Bind<'a> {
    match *value {
        admission::Bind::Text(text) => Bind::Text(text),
        admission::Bind::Number(number) => Bind::Number(number),
    }
}
