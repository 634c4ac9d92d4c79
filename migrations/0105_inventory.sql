-- How many of each item are left. A client sets a level absolutely; a checkout takes from it. A
-- CHECK on one row ensures that nothing is sold twice, even if requests race and one of them took
-- no lock.
CREATE TABLE inventory (
    account_id uuid        NOT NULL,
    -- Byte order ("C"): the program sorts by it too, so all transactions that lock several levels
    -- lock them in one order and can't deadlock.
    sku        text        COLLATE "C" NOT NULL,
    quantity   bigint      NOT NULL,
    updated_at timestamptz NOT NULL,

    CONSTRAINT inventory_is_known_by_account_and_sku PRIMARY KEY (account_id, sku),
    CONSTRAINT a_sku_has_1_to_255_characters CHECK (char_length(sku) BETWEEN 1 AND 255),
    CONSTRAINT inventory_is_never_negative CHECK (quantity >= 0),
    CONSTRAINT inventory_is_at_most_1000000000 CHECK (quantity <= 1000000000)
);

COMMENT ON TABLE inventory IS 'How many of each stock-keeping unit an account has left to sell.';
COMMENT ON COLUMN inventory.sku IS
    'The account''s own name for what it sells; the items of an order use it too.';
COMMENT ON COLUMN inventory.updated_at IS 'When the level was last set or taken from.';
