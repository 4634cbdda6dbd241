-- Tell the parents of jobs that ended how they did: the step that spawned each gets its result or its error, and a parent
-- that waits for it may go on. _ends has for each child {"parent_id", "key", "child_id", "state", "result" as text, "type",
-- "message"}. The parents are locked here if the caller has not done so; those that are gone are not told.
create or replace function stepwell.end_children(_ends json) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _now timestamptz := stepwell.now();
  _parent_ids uuid[] := array(select distinct (e.value ->> 'parent_id')::uuid from json_array_elements(_ends) as e);
begin
  -- Of a job that nobody spawned they are only handed on; a parent's are read here when it ends, is retried or forked.
  perform stepwell.check_values(array(select e.value ->> 'result' from json_array_elements(_ends) as e));
  perform from stepwell.job j where j.id = any (_parent_ids) order by j.id for no key update;
  with ended as materialized (
    select e.parent_id, e.key, e.child_id, e.state, e.result, e.type, e.message,
      coalesce(octet_length(e.result) > 65536, false) as large
    from json_to_recordset(_ends) as e (
      parent_id uuid, key text, child_id uuid, state text, result text, type text, message text
    )
  ), found as materialized (
    -- Lateral, so that each step is looked up by its key, whatever plan is kept: a parent may have many, and so may be the
    -- children that end together. Who changes a step holds its job, as this does: so the row stays where it was found.
    select s.ctid, e.state, e.result, e.type, e.message, e.large
    from ended e
    cross join lateral (
      select s.ctid, s.child_id, s.pending from stepwell.step s where s.job_id = e.parent_id and s.key = e.key offset 0
    ) s
    where s.child_id = e.child_id and s.pending
  ), told as (
    update stepwell.step s
    set pending = false, saved_at = _now, large = f.large,
      value = case when not f.large then f.result::json end,
      error = case when f.state <> 'succeeded' then
        json_build_object('type', f.type, 'message', f.message, 'state', f.state)
      end
    from found f
    where s.ctid = f.ctid
    returning s.job_id, s.key, s.large, f.result
  )
  insert into stepwell.large_value (job_id, expires_at, key, value)
  select t.job_id, 'infinity', t.key, t.result::json from told t where t.large
  on conflict (job_id, key) do update set value = excluded.value;
  perform stepwell.wake(_parent_ids);
end
$$;
