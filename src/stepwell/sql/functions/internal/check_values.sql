-- Refuse values that could not be read again, like stepwell.check_value, at a lower cost: only a value with an escape
-- such as \u0000 or \ud800 can hold text that Postgres cannot represent.
create or replace function stepwell.check_values(_values text[]) returns void
language plpgsql immutable
as $$
begin
  if strpos(array_to_string(_values, ''), E'\\u') > 0 then
    perform stepwell.check_value(v.value::json) from unnest(_values) as v (value) where strpos(v.value, E'\\u') > 0;
  end if;
end
$$;
