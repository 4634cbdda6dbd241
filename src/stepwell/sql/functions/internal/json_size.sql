-- The approximate size in bytes of a stored value as text. It is read from the header, without fetching the value,
-- unless the value is compressed. The function has no settings, so that Postgres inlines it.
create or replace function stepwell.json_size(_value json) returns integer
language sql stable
as $$
  select case
    when pg_catalog.pg_column_compression(_value) is null then pg_catalog.pg_column_size(_value)
    else pg_catalog.octet_length(_value::pg_catalog.text)
  end
$$;
