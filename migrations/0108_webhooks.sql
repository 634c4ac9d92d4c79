-- `crates/webhooks` creates the tables of events and webhooks, and knows no accounts.
ALTER TABLE webhook_endpoints
    ADD CONSTRAINT a_webhook_endpoint_belongs_to_an_account
        FOREIGN KEY (account_id) REFERENCES accounts (id);
