-- Refuse JSON that could not be read again, because it holds text or numbers that Postgres cannot represent.
create or replace function stepwell.check_value(_value json) returns void
language plpgsql immutable
as $$
begin
  if _value is null then
    return;
  end if;
  perform _value::jsonb;
exception when data_exception or statement_too_complex then
  raise exception using errcode = 'invalid_parameter_value',
    message = format('stepwell: Postgres cannot store this value: %s', sqlerrm),
    detail = E'It has a NUL character (\\u0000), half of a surrogate pair, a number out of range, or too many levels.';
end
$$;
