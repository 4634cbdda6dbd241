-- A unique key as stepwell.unique_key has it: with its scope, and cut if it is long, as stepwell.values.admission in
-- Python writes it. A cut key ends in a digest, every other one in a bracket, so that they cannot be equal.
create or replace function stepwell.unique_text(_scope text, _within text, _key text) returns text
language plpgsql stable
as $$
declare
  _text text := '[' || to_json(_scope)::text || ',' || to_json(_within)::text || ',' || to_json(_key)::text || ']';
begin
  if length(_text) <= 200 then
    return _text;
  end if;
  return left(_text, 167) || '~' || left(encode(sha256(convert_to(_text, 'UTF8')), 'hex'), 32);
end
$$;
