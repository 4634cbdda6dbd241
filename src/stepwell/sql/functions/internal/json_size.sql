-- How many bytes a stored value has as text, or very nearly: from its header, so that nothing is read, unless it is compressed.
-- No setting of its own: then Postgres puts its body in the place of the call.
create or replace function stepwell.json_size(_value json) returns integer
language sql stable
as $$
  select case
    when pg_catalog.pg_column_compression(_value) is null then pg_catalog.pg_column_size(_value)
    else pg_catalog.octet_length(_value::pg_catalog.text)
  end
$$;
