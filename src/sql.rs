//! SQL over the object's storage, through our own externs: the crate's cursor methods lack `catch`.
//!
//! Invariant: a row set is read whole at once; numbers are integers below 2^53, the range of a JSON number.
//! Statements with no `await` between them are one transaction, and nothing leaves the object before it is durable.

use js_sys::Array;
use serde::de::DeserializeOwned;
use wasm_bindgen::prelude::*;
use worker::State;

use crate::objects::thrown;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(extends = js_sys::Object, js_name = Object)]
    #[derive(Clone, Debug)]
    type RawSql;
    #[wasm_bindgen(method, catch, variadic)]
    fn exec(this: &RawSql, query: &str, bindings: &Array) -> Result<RawCursor, JsValue>;

    #[wasm_bindgen(extends = js_sys::Object, js_name = Object)]
    type RawCursor;
    #[wasm_bindgen(method, catch, js_name = toArray)]
    fn to_array(this: &RawCursor) -> Result<Array, JsValue>;
}

/// Storage failed, or holds what this version cannot read. Nothing was decided on it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("storage: {0}")]
pub struct StoreError(pub String);

impl From<serde_json::Error> for StoreError {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

fn failed(value: JsValue) -> StoreError {
    StoreError(thrown(&value))
}

/// A value for a `?`.
pub enum Bind<'a> {
    Text(&'a str),
    Number(u64),
    Signed(i64),
    Null,
}

impl<'a> From<&'a str> for Bind<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}
impl<'a> From<&'a String> for Bind<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}
impl From<u64> for Bind<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}
impl From<i64> for Bind<'_> {
    fn from(number: i64) -> Self {
        Self::Signed(number)
    }
}
impl From<bool> for Bind<'_> {
    fn from(value: bool) -> Self {
        Self::Number(u64::from(value))
    }
}
impl<'a, T: Into<Bind<'a>>> From<Option<T>> for Bind<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl From<Bind<'_>> for JsValue {
    fn from(bind: Bind<'_>) -> Self {
        match bind {
            Bind::Text(text) => Self::from_str(text),
            Bind::Number(number) => Self::from_f64(number as f64),
            Bind::Signed(number) => Self::from_f64(number as f64),
            Bind::Null => Self::NULL,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Sql(RawSql);

impl Sql {
    pub fn of(state: &State) -> Result<Self, StoreError> {
        let storage = state.storage();
        let sql = js_sys::Reflect::get(storage.as_raw(), &"sql".into()).map_err(failed)?;
        Ok(Self(sql.unchecked_into()))
    }

    fn exec<'a>(
        &self,
        query: &str,
        bindings: impl IntoIterator<Item = Bind<'a>>,
    ) -> Result<RawCursor, StoreError> {
        let values = Array::new();
        for bind in bindings {
            values.push(&bind.into());
        }
        self.0.exec(query, &values).map_err(failed)
    }

    pub fn run<'a>(
        &self,
        query: &str,
        bindings: impl IntoIterator<Item = Bind<'a>>,
    ) -> Result<(), StoreError> {
        self.exec(query, bindings).map(drop)
    }

    pub fn rows<'a, T: DeserializeOwned>(
        &self,
        query: &str,
        bindings: impl IntoIterator<Item = Bind<'a>>,
    ) -> Result<Vec<T>, StoreError> {
        let rows = self.exec(query, bindings)?.to_array().map_err(failed)?;
        if rows.length() == 0 {
            return Ok(Vec::new());
        }
        let text = js_sys::JSON::stringify(&rows).map_err(failed)?;
        Ok(serde_json::from_str(&String::from(text))?)
    }

    pub fn row<'a, T: DeserializeOwned>(
        &self,
        query: &str,
        bindings: impl IntoIterator<Item = Bind<'a>>,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.rows(query, bindings)?.into_iter().next())
    }
}
