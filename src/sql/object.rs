//! SQL over the object's storage, through our own externs: the crate's cursor methods lack `catch`.

use js_sys::Array;
use serde::de::DeserializeOwned;
use wasm_bindgen::prelude::*;
use worker::State;

use super::{Bind, StoreError};
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

fn failed(value: JsValue) -> StoreError {
    StoreError(thrown(&value))
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
