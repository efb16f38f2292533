"""Journal, keys, routes, runs, ledger, leases, outbox, objects; roles and forced row level security."""

from alembic import op

revision = "0001"
down_revision = None

ROLES = ("perdure_owner", "perdure_service", "perdure_relay", "perdure_analyst")

TABLES = """
CREATE TABLE perdure.tenant_keys (
    tenant text NOT NULL, key_id text NOT NULL, wrapped bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, key_id)
);
CREATE TABLE perdure.subject_keys (
    tenant text NOT NULL, subject_type text NOT NULL, subject_id text NOT NULL, key_id text NOT NULL,
    wrapped bytea, created_at timestamptz NOT NULL DEFAULT now(), destroyed_at timestamptz,
    PRIMARY KEY (tenant, subject_type, subject_id),
    CHECK ((wrapped IS NULL) = (destroyed_at IS NOT NULL))
);
CREATE TABLE perdure.journal (
    tenant text NOT NULL, stream_type text NOT NULL, stream_id text NOT NULL, version integer NOT NULL CHECK (version > 0),
    event_id text NOT NULL, type text NOT NULL, payload bytea NOT NULL, subject_type text NOT NULL, subject_id text NOT NULL,
    actor text NOT NULL, process text NOT NULL, policy_version text, recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, stream_type, stream_id, version),
    UNIQUE (tenant, event_id)
);
CREATE TABLE perdure.outbox (
    tenant text NOT NULL, event_id text NOT NULL, topic text NOT NULL, reference jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(), due_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempts integer NOT NULL DEFAULT 0, delivered_at timestamptz,
    PRIMARY KEY (tenant, event_id, topic)
);
CREATE INDEX outbox_open ON perdure.outbox (due_at) WHERE delivered_at IS NULL;
CREATE TABLE perdure.requests (
    tenant text NOT NULL, key text NOT NULL, operation text NOT NULL, digest text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, key)
);
CREATE TABLE perdure.routes (
    tenant text NOT NULL, name text NOT NULL, version integer NOT NULL CHECK (version > 0), digest text NOT NULL,
    document jsonb NOT NULL, installed_by text NOT NULL, installed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, name, version)
);
CREATE TABLE perdure.runs (
    tenant text NOT NULL, run_id text NOT NULL, route text NOT NULL, route_version integer NOT NULL, input_digest text NOT NULL,
    subject_type text, subject_id text,
    status text NOT NULL CHECK (status IN ('running', 'waiting', 'ended', 'terminated')),
    held boolean NOT NULL DEFAULT false, step text, waiting_for text, waiting_since timestamptz,
    started_by text NOT NULL, started_at timestamptz NOT NULL DEFAULT now(), ended_at timestamptz,
    outcome text, reason text, execution text NOT NULL,
    PRIMARY KEY (tenant, run_id)
);
CREATE INDEX runs_newest ON perdure.runs (tenant, started_at DESC, run_id);
CREATE TABLE perdure.intents (
    tenant text NOT NULL, intent_id text NOT NULL, version integer NOT NULL CHECK (version > 0), run_id text NOT NULL,
    route text NOT NULL, step text NOT NULL, action text NOT NULL, tool text NOT NULL,
    object_type text NOT NULL, object_id text NOT NULL, arguments_digest text NOT NULL, content bytea NOT NULL,
    amount numeric, currency text, uses integer NOT NULL, created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, intent_id, version),
    FOREIGN KEY (tenant, run_id) REFERENCES perdure.runs
);
CREATE TABLE perdure.reviews (
    tenant text NOT NULL, review_id text NOT NULL, run_id text NOT NULL, route text NOT NULL, step text NOT NULL,
    opening text NOT NULL, intent_id text NOT NULL, intent_version integer NOT NULL, digest text NOT NULL,
    status text NOT NULL CHECK (status IN ('pending', 'approved', 'rejected', 'expired', 'cancelled')),
    approvers text[] NOT NULL CHECK (cardinality(approvers) > 0), rests_on text[] NOT NULL, content bytea NOT NULL,
    previous_version integer, opened_at timestamptz NOT NULL DEFAULT now(), expires_at timestamptz NOT NULL, warn_at timestamptz,
    warned_at timestamptz, decided_at timestamptz, decided_by text, identity text, decision_id text, comment bytea,
    grant_id text, cancelled_because text,
    PRIMARY KEY (tenant, review_id),
    UNIQUE (tenant, run_id, opening),
    FOREIGN KEY (tenant, intent_id, intent_version) REFERENCES perdure.intents,
    CHECK ((status IN ('approved', 'rejected')) = (decision_id IS NOT NULL))
);
CREATE UNIQUE INDEX reviews_one_open ON perdure.reviews (tenant, intent_id) WHERE status = 'pending';
CREATE INDEX reviews_newest ON perdure.reviews (tenant, status, opened_at DESC);
CREATE TABLE perdure.grants (
    tenant text NOT NULL, grant_id text NOT NULL, review_id text NOT NULL, run_id text NOT NULL,
    intent_id text NOT NULL, intent_version integer NOT NULL, action text NOT NULL, tool text NOT NULL,
    object_type text NOT NULL, object_id text NOT NULL, arguments_digest text NOT NULL,
    amount_left numeric CHECK (amount_left >= 0), currency text, uses_left integer NOT NULL CHECK (uses_left >= 0),
    rests_on text[] NOT NULL, approved_by text NOT NULL, approved_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL, revoked_at timestamptz, revoked_because text,
    PRIMARY KEY (tenant, grant_id),
    UNIQUE (tenant, review_id),
    FOREIGN KEY (tenant, review_id) REFERENCES perdure.reviews
);
CREATE INDEX grants_of_run ON perdure.grants (tenant, run_id);
CREATE TABLE perdure.effects (
    tenant text NOT NULL, key text NOT NULL, run_id text NOT NULL, grant_id text NOT NULL, intent_id text NOT NULL,
    intent_version integer NOT NULL, action text NOT NULL, tool text NOT NULL, object_type text NOT NULL, object_id text NOT NULL,
    arguments_digest text NOT NULL, status text NOT NULL CHECK (status IN ('reserved', 'done', 'not_executed', 'unknown')),
    holder text NOT NULL, fence bigint NOT NULL CHECK (fence > 0), not_after timestamptz NOT NULL,
    leased_until timestamptz NOT NULL, result bytea, result_digest text,
    reserved_at timestamptz NOT NULL DEFAULT now(), settled_at timestamptz,
    PRIMARY KEY (tenant, key),
    FOREIGN KEY (tenant, grant_id) REFERENCES perdure.grants,
    CHECK ((status = 'reserved') = (settled_at IS NULL))
);
CREATE INDEX effects_of_run ON perdure.effects (tenant, run_id);
CREATE TABLE perdure.leases (
    tenant text NOT NULL, name text NOT NULL, purpose text NOT NULL, holder text, fence bigint NOT NULL CHECK (fence > 0),
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, name)
);
CREATE TABLE perdure.objects (
    tenant text NOT NULL, object_id text NOT NULL, sha256 text NOT NULL, size bigint NOT NULL, media_type text NOT NULL,
    subject_type text NOT NULL, subject_id text NOT NULL, created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, object_id)
);
"""

TENANT = "tenant = NULLIF(current_setting('perdure.tenant', true), '')"
APPEND_ONLY = ("journal", "intents", "routes", "objects")
CHANGED = ("requests", "tenant_keys", "subject_keys", "outbox", "runs", "reviews", "grants", "effects", "leases")


def upgrade() -> None:
    for role in ROLES:
        _create(role)
    _become_owner()
    for statement in filter(str.strip, TABLES.split(";")):
        op.execute(statement)
    op.execute("GRANT USAGE ON SCHEMA perdure TO perdure_service, perdure_relay")
    for table in APPEND_ONLY + CHANGED:
        _isolate(table)
    _relay()
    op.execute("RESET ROLE")


def _create(role: str) -> None:
    """Roles belong to the whole server: another database may have made them, and may be making them now."""
    login = "LOGIN" if role in ("perdure_service", "perdure_relay") else "NOLOGIN"
    op.execute(
        f"DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN"
        f" CREATE ROLE {role} {login} NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE; END IF;"
        " EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
    )


def _become_owner() -> None:
    """Everything belongs to a role that nobody logs in as, whoever migrates."""
    op.execute(
        "DO $$ BEGIN IF NOT pg_has_role(current_user, 'perdure_owner', 'USAGE') THEN"
        " GRANT perdure_owner TO CURRENT_USER; END IF; END $$"
    )
    op.execute("CREATE SCHEMA perdure AUTHORIZATION perdure_owner")
    op.execute("SET LOCAL ROLE perdure_owner")


def _isolate(table: str) -> None:
    op.execute(f"ALTER TABLE perdure.{table} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE perdure.{table} FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY tenant ON perdure.{table} TO perdure_service USING ({TENANT}) WITH CHECK ({TENANT})")
    change = ", UPDATE" if table in CHANGED else ""
    op.execute(f"GRANT SELECT, INSERT{change} ON perdure.{table} TO perdure_service")


def _relay() -> None:
    op.execute("CREATE POLICY relay ON perdure.outbox TO perdure_relay USING (true) WITH CHECK (true)")
    op.execute("GRANT SELECT, UPDATE (due_at, attempts, delivered_at) ON perdure.outbox TO perdure_relay")
    op.execute(
        "CREATE FUNCTION perdure.outbox_rings() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_notify('perdure_outbox', ''); RETURN NULL; END $$"
    )
    op.execute(
        "CREATE TRIGGER rings AFTER INSERT ON perdure.outbox FOR EACH STATEMENT EXECUTE FUNCTION perdure.outbox_rings()"
    )


def downgrade() -> None:
    raise NotImplementedError("an append-only journal is not dropped by a migration")
