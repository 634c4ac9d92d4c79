-- Who took the money gives it back: the simulation in this process knows nothing of what a processor
-- across a network did, and the other way round. Charges that are pending are settled with a name.
ALTER TABLE charges ADD COLUMN processor text;

UPDATE charges
   SET processor = operations.processor
  FROM operations
 WHERE operations.account_id = charges.account_id AND operations.charge_id = charges.id
   AND operations.verb IN ('create_charge', 'pay_order') AND operations.settled_at IS NOT NULL;

COMMENT ON COLUMN charges.processor IS
    'The processor across a network that was asked, by its name (PROCESSOR_NAME); NULL: the simulation.';
