-- Notify the workers that jobs wait in the lines of these keys, so that one of them admits what fits. For callers whose
-- transaction may stay open: they must not hold the locks of stepwell.admit_keys. To workers, an empty
-- payload stands for all lines; an empty array sends nothing.
create or replace function stepwell.notify_blocked(_keys text[]) returns void
language plpgsql volatile
as $$
declare
  _payload text := array_to_json(_keys)::text;
begin
  if cardinality(_keys) > 0 then
    perform stepwell.notify('stepwell_blocked', case when octet_length(_payload) < 8000 then _payload else '[]' end);
  end if;
end
$$;
