//! The statements of a transaction: one for each table, for however many requests.

use sqlx::PgConnection;

use super::rows::{Changes, RowId, RowName, Rows};
use crate::{domain::ids::AccountId, idempotency, store, webhooks};

impl idempotency::Rows for Rows {
    type Name = RowName;
    type Changes = Changes;

    async fn read(
        &mut self,
        tx: &mut PgConnection,
        names: Vec<RowName>,
    ) -> Result<(), sqlx::Error> {
        self.read_all(tx, names).await
    }

    fn apply(&mut self, changes: Changes) {
        self.tables.apply(changes.tables);
        self.events.extend(changes.events);
    }

    async fn write(self, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        self.write_all(tx).await
    }
}

impl Rows {
    /// Reads those of `names` that were not read. `false`: there was none.
    pub(super) async fn read_more(
        &mut self,
        tx: &mut PgConnection,
        names: impl Iterator<Item = RowName>,
    ) -> Result<bool, sqlx::Error> {
        let mut more: Vec<RowName> = names.filter(|name| !self.read.contains(name)).collect();
        more.sort_unstable();
        more.dedup();
        let is_more = !more.is_empty();
        if is_more {
            self.read_all(tx, more).await?;
        }
        Ok(is_more)
    }

    /// Locks rows and reads them, in the order of [`RowId`]. A row that is not there is no error.
    async fn read_all(
        &mut self,
        tx: &mut PgConnection,
        names: Vec<RowName>,
    ) -> Result<(), sqlx::Error> {
        let (mut intents, mut charges, mut orders) = (Vec::new(), Vec::new(), Vec::new());
        let (mut order_names, mut refunds) = (Vec::new(), Vec::new());
        for (account, row) in &names {
            match row {
                RowId::Intent(id) => intents.push((*account, *id)),
                RowId::Charge(id) => charges.push((*account, *id)),
                RowId::Order(id) => orders.push((*account, *id)),
                RowId::OrderNamed(name) => order_names.push((*account, name.clone())),
                RowId::Refund(id) => refunds.push((*account, *id)),
            }
        }
        let tables = &mut self.tables;
        if let Some(ids) = sorted(intents) {
            let found = store::payment_intents::lock_all(tx, &ids).await?;
            tables.intents.hold(found);
        }
        if let Some(ids) = sorted(charges) {
            let found = store::charges::lock_all(tx, &ids).await?;
            if !found.is_empty() {
                // In a statement of its own: the one that waited for the locks has an old snapshot.
                let open = store::charges::open_work(tx, &ids).await?.into_iter();
                let open = open.map(|((account, id), open)| ((account, RowId::Charge(id)), open));
                self.open_work.extend(open);
            }
            tables.charges.hold(found);
        }
        if let Some(ids) = sorted(orders) {
            let found = store::orders::lock_all(tx, &ids).await?;
            if !found.is_empty() {
                let open = store::orders::open_work(tx, &ids).await?.into_iter();
                let open = open.map(|((account, id), open)| ((account, RowId::Order(id)), open));
                self.open_work.extend(open);
            }
            tables.orders.hold(found);
        }
        if let Some(names) = any(order_names) {
            for (account, order) in store::orders::named(tx, &names).await? {
                if let Some(name) = order.client_order_id.clone() {
                    self.orders_by_name.insert((account, name), order);
                }
            }
        }
        if let Some(ids) = sorted(refunds) {
            tables
                .refunds
                .hold(store::refunds::lock_all(tx, &ids).await?);
        }
        self.read.extend(names);
        Ok(())
    }

    /// Applies changes, and writes them.
    pub(super) async fn write_with(
        mut self,
        tx: &mut PgConnection,
        changes: Changes,
    ) -> Result<(), sqlx::Error> {
        idempotency::Rows::apply(&mut self, changes);
        self.write_all(tx).await
    }

    /// Writes all that was applied. What others refer to is inserted first, and deleted last.
    async fn write_all(self, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        let tables = &self.tables;
        if let Some(new) = any(tables.intents.added()) {
            store::payment_intents::insert_all(tx, &new).await?;
        }
        if let Some(new) = any(tables.orders.added()) {
            store::orders::insert_all(tx, &new).await?;
        }
        if let Some(new) = any(tables.charges.added()) {
            store::charges::insert_all(tx, &new).await?;
        }
        if let Some(new) = any(tables.refunds.added()) {
            store::refunds::insert_all(tx, &new).await?;
        }
        if let Some(changed) = any(tables.charges.changed()) {
            store::charges::update_all(tx, &changed).await?;
        }
        if let Some(changed) = any(tables.orders.changed()) {
            store::orders::update_all(tx, &changed).await?;
        }
        if let Some(changed) = any(tables.refunds.changed()) {
            store::refunds::update_all(tx, &changed).await?;
        }
        if let Some(gone) = any(tables.refunds.gone()) {
            store::refunds::delete_all(tx, &gone).await?;
        }
        if let Some(gone) = any(tables.charges.gone()) {
            store::charges::delete_all(tx, &gone).await?;
        }
        if !self.events.is_empty() {
            webhooks::emit(tx, &self.events).await?;
        }
        Ok(())
    }
}

/// Ids in the order in which every transaction locks them; `None` if there are none.
fn sorted<Id: Ord>(mut ids: Vec<(AccountId, Id)>) -> Option<Vec<(AccountId, Id)>> {
    ids.sort_unstable();
    any(ids)
}

fn any<T>(rows: Vec<T>) -> Option<Vec<T>> {
    Some(rows).filter(|rows| !rows.is_empty())
}
