-- What the last `charge-once check` found, so that servers can show it among their metrics: the
-- command itself ends before anything could ask it.
CREATE TABLE last_check (
    is_last     boolean     NOT NULL DEFAULT true,
    violations  integer     NOT NULL,
    finished_at timestamptz NOT NULL,

    CONSTRAINT there_is_one_last_check PRIMARY KEY (is_last),
    CONSTRAINT the_last_check_is_the_only_row CHECK (is_last),
    CONSTRAINT violations_are_counted_from_0 CHECK (violations >= 0)
);

COMMENT ON TABLE last_check IS 'One row after the first `charge-once check` that came to its end.';
COMMENT ON COLUMN last_check.violations IS
    'Violations that it printed: 100 at most of each invariant. 0: everything held.';
