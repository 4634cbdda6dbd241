-- Refuse a value that could not be read again: JSON in which Postgres finds text or numbers that it cannot keep.
create or replace function stepwell.check_value(_value json) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if _value is null then
    return;
  end if;
  perform _value::jsonb;
exception when data_exception or statement_too_complex then
  raise exception using errcode = 'invalid_parameter_value',
    message = format('stepwell: the value cannot be kept by Postgres: %s', sqlerrm),
    detail = E'A NUL character (\\u0000), half of a surrogate pair, a number out of all bounds, or too deep.';
end
$$;
