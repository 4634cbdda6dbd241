-- Take the unique keys of jobs that have nothing but a key, if none of the keys is there (all_new), or return the jobs
-- that have them, if all are taken (holders). Otherwise nothing is taken: stepwell.take_keys has all cases.
create or replace function stepwell.take_plain_keys(
  _now timestamptz,
  _ids uuid[],
  _keys text[],
  out all_new boolean,
  out holders uuid[]
)
language plpgsql volatile
-- An open transaction may be about to free a key: stepwell.take_keys reads whose it is, without a lock.
set lock_timeout = '20ms'
as $$
begin
  all_new := false;
  -- The first hundred show most lists that have taken keys. Otherwise the insert ends at the first taken one, and is
  -- undone.
  perform from stepwell.unique_key k where k.key = any (_keys[1:100]) limit 1;
  if not found then
    insert into stepwell.unique_key (key, job_id, live, until_start)
    select u.key, u.id, true, false from unnest(_keys, _ids) as u (key, id) order by u.key collate "C";
    all_new := true;
    return;
  end if;
  select array_agg(k.job_id order by u.n)
    filter (where (k.live or k.expires_at > _now) and k.job_id <> '00000000-0000-0000-0000-000000000000')
  into holders
  from unnest(_keys) with ordinality as u (key, n)
  join stepwell.unique_key k on k.key = u.key collate "C"
  where k.key = any (_keys);
  if cardinality(holders) is distinct from cardinality(_keys) then
    holders := null;
  end if;
exception when unique_violation or lock_not_available then
  -- A key that stands twice in the list, that is taken, or that another session is taking or freeing.
  all_new := false;
end
$$;
