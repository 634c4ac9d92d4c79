SET LOCAL lock_timeout = '2s';

ALTER TABLE charges VALIDATE CONSTRAINT a_charge_pays_an_intent_of_its_own_account;
ALTER TABLE charges VALIDATE CONSTRAINT a_charge_of_an_intent_has_a_payment_method;
ALTER TABLE operations VALIDATE CONSTRAINT an_operation_verb_is_known;
ALTER TABLE operations VALIDATE CONSTRAINT an_authorization_is_whole;
ALTER TABLE operations VALIDATE CONSTRAINT a_refund_operation_names_its_refund;
ALTER TABLE operations VALIDATE CONSTRAINT an_operation_of_an_intent_names_it;
