-- Hold unique keys for jobs that this transaction enqueues next, so that a caller with more jobs than one call takes
-- locks all their keys in order first. A key that is taken stays as it is.
create or replace function stepwell.hold_keys(_keys text[]) returns void
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
begin
  if exists (select from unnest(_keys) as k (key) where length(k.key) not between 1 and 200) then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: a unique key must have 1 to 200 characters';
  end if;
  perform stepwell.take_keys(
    _now,
    array(
      select '00000000-0000-0000-0000-000000000000'::uuid from unnest(_keys) as k (key) where k.key is not null
    ),
    array(
      select json_build_object('unique', json_build_object('key', k.key)) from unnest(_keys) as k (key)
      where k.key is not null
    )
  );
end
$$;
