"""Alembic's entry: runs the migrations on the connection it is given, in one transaction."""

from alembic import context
from sqlalchemy import Connection

connection: Connection = context.config.attributes["connection"]
context.configure(connection=connection, version_table="schema_version", version_table_schema="public")
with context.begin_transaction():
    context.run_migrations()
