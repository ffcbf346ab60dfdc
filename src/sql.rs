//! SQL over the storage of an object.
//!
//! Invariant: a row set is read whole at once; numbers are integers below 2^53, the range of a JSON number.
//! Statements with no `await` between them are one transaction, and nothing leaves the object before it is durable.
//!
//! The unit tests run the same statements, and the decisions over them, on SQLite itself.

#[cfg(not(test))]
mod object;
#[cfg(test)]
pub mod sqlite;

#[cfg(not(test))]
pub use object::Sql;
#[cfg(test)]
pub use sqlite::Sql;

/// Storage failed, or holds what this version cannot read. Nothing was decided on it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("storage: {0}")]
pub struct StoreError(pub String);

impl From<serde_json::Error> for StoreError {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
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
