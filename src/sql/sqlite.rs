//! The storage of an object over SQLite in memory, for tests: calls can be cut short after any of their writes, and
//! statements can be spoilt.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, StatementStatus, params_from_iter};
use serde::de::DeserializeOwned;
use serde_json::Map;
use worker::State;

use super::{Bind, StoreError};

/// What a call that was cut short fails with.
pub const CUT: &str = "cut short";

/// How a call is cut short after some of its writes.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// The process died: what the call wrote is rolled back with it.
    RolledBack { writes: u32 },
    /// A statement failed and nothing was rolled back.
    Kept { writes: u32 },
}

pub type Spoilt = &'static [(&'static str, &'static str)];

#[derive(Debug)]
struct Inner {
    connection: Connection,
    writes_left: Cell<Option<u32>>,
    /// (written, spoilt)
    spoilt: Cell<Spoilt>,
    spoilt_hits: RefCell<Vec<u32>>,
    steps: Cell<u64>,
}

#[derive(Clone, Debug)]
pub struct Sql(Rc<Inner>);

impl Sql {
    pub fn of(_: &State) -> Result<Self, StoreError> {
        Err(StoreError("there is no object here".to_owned()))
    }

    pub fn new() -> Self {
        Self::over(Connection::open_in_memory().unwrap())
    }

    pub fn over(connection: Connection) -> Self {
        connection.execute_batch("PRAGMA synchronous = OFF").unwrap();
        Self(Rc::new(Inner {
            connection,
            writes_left: Cell::new(None),
            spoilt: Cell::new(&[]),
            spoilt_hits: RefCell::default(),
            steps: Cell::new(0),
        }))
    }

    /// From here on these texts stand in place of those in every statement.
    pub fn spoil(&self, spoilt: Spoilt) {
        self.0.spoilt.set(spoilt);
        *self.0.spoilt_hits.borrow_mut() = vec![0; spoilt.len()];
    }

    /// How often each spoilt text was met.
    pub fn spoilt_hits(&self) -> Vec<u32> {
        self.0.spoilt_hits.borrow().clone()
    }

    /// Runs what an object does between two awaits, cut short or not.
    pub fn call<T, E>(&self, cut: Option<Cut>, run: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let (writes, roll_back) = match cut {
            None => (None, false),
            Some(Cut::RolledBack { writes }) => (Some(writes), true),
            Some(Cut::Kept { writes }) => (Some(writes), false),
        };
        self.0.connection.execute_batch("BEGIN").unwrap();
        self.0.writes_left.set(writes);
        let result = run();
        self.0.writes_left.set(None);
        let end = if result.is_err() && roll_back { "ROLLBACK" } else { "COMMIT" };
        self.0.connection.execute_batch(end).unwrap();
        result
    }

    pub fn transaction<T>(&self, run: impl FnOnce() -> T) -> T {
        let result: Result<T, ()> = self.call(None, || Ok(run()));
        result.unwrap()
    }

    /// The virtual machine steps that SQLite took for `run`.
    pub fn count_steps<T>(&self, run: impl FnOnce() -> T) -> u64 {
        let before = self.0.steps.get();
        run();
        self.0.steps.get() - before
    }

    fn text(&self, query: &str) -> String {
        let mut text = query.to_owned();
        for (n, (written, spoilt)) in self.0.spoilt.get().iter().enumerate() {
            if text.contains(written) {
                self.0.spoilt_hits.borrow_mut()[n] += 1;
                text = text.replace(written, spoilt);
            }
        }
        text
    }

    pub fn run<'a>(
        &self,
        query: &str,
        bindings: impl IntoIterator<Item = Bind<'a>>,
    ) -> Result<(), StoreError> {
        self.rows::<serde_json::Value>(query, bindings).map(drop)
    }

    pub fn row<'a, T: DeserializeOwned>(
        &self,
        query: &str,
        bindings: impl IntoIterator<Item = Bind<'a>>,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.rows(query, bindings)?.into_iter().next())
    }

    pub fn rows<'a, T: DeserializeOwned>(
        &self,
        query: &str,
        bindings: impl IntoIterator<Item = Bind<'a>>,
    ) -> Result<Vec<T>, StoreError> {
        let failed = |error: rusqlite::Error| StoreError(error.to_string());
        let mut statement = self.0.connection.prepare_cached(&self.text(query)).map_err(failed)?;
        if !statement.readonly() {
            match self.0.writes_left.get() {
                Some(0) => return Err(StoreError(CUT.to_owned())),
                Some(left) => self.0.writes_left.set(Some(left - 1)),
                None => {}
            }
        }
        let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let values = bindings.into_iter().map(value);
        statement.reset_status(StatementStatus::VmStep);
        let mut rows = statement.query(params_from_iter(values)).map_err(failed)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            let mut object = Map::new();
            for (at, name) in names.iter().enumerate() {
                let value = match row.get_ref(at).map_err(failed)? {
                    ValueRef::Null => serde_json::Value::Null,
                    ValueRef::Integer(number) => number.into(),
                    ValueRef::Text(text) => String::from_utf8(text.to_vec()).unwrap().into(),
                    other => panic!("no column of this kind: {other:?}"),
                };
                object.insert(name.clone(), value);
            }
            found.push(serde_json::from_value(object.into())?);
        }
        drop(rows);
        let steps = u64::try_from(statement.get_status(StatementStatus::VmStep)).unwrap_or_default();
        self.0.steps.set(self.0.steps.get() + steps);
        Ok(found)
    }
}

fn value(bind: Bind<'_>) -> Value {
    match bind {
        Bind::Text(text) => Value::Text(text.to_owned()),
        Bind::Number(number) => Value::Integer(i64::try_from(number).unwrap()),
        Bind::Signed(number) => Value::Integer(number),
        Bind::Null => Value::Null,
    }
}
