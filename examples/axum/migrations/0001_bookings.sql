CREATE TABLE bookings (
    seat integer PRIMARY KEY,
    booked_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE bookings IS 'One row per seat that is taken.';
