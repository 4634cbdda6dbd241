-- Whether an argument, given by name or by a path with dots, has this value as text. Args that plain SQL has stored may
-- have text that Postgres cannot represent, such as half of a surrogate pair: they match nothing, instead of ending the
-- search. Only args with an escape can have it, so that few rows pay for the exception block.
create or replace function stepwell.argument_is(_args json, _name text, _value text) returns boolean
language plpgsql immutable
as $$
begin
  return _args ->> _name = _value or _args #>> string_to_array(_name, '.') = _value;
exception when data_exception or statement_too_complex then
  return false;
end
$$;
