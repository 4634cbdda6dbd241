-- Store the result or error of jobs that ended in the step of the parent that spawned each, and wake parents that wait
-- for it. Each element of _ends is {"parent_id", "key", "child_id", "state", "result" as text, "type", "message"}. The
-- function locks the parents, if the caller has not done so, and ignores parents that have ended.
create or replace function stepwell.end_children(_ends json) returns void
language plpgsql volatile
as $$
declare
  _now timestamptz := stepwell.now();
  _parent_ids uuid[] := array(select distinct (e.value ->> 'parent_id')::uuid from json_array_elements(_ends) as e);
begin
  -- Only the result of a child is ever parsed: when its parent ends, is retried or is forked.
  perform stepwell.check_values(array(select e.value ->> 'result' from json_array_elements(_ends) as e));
  perform from stepwell.job j where j.id = any (_parent_ids) order by j.id for no key update;
  with ended as materialized (
    select e.parent_id, e.key, e.child_id, e.state, e.result, e.type, e.message,
      coalesce(octet_length(e.result) > 65536, false) as large
    from json_to_recordset(_ends) as e (
      parent_id uuid, key text, child_id uuid, state text, result text, type text, message text
    )
  ), found as materialized (
    -- Lateral, so that every plan looks each step up by its key: a parent may have many steps and children. A step is
    -- changed only under the lock on its job, which this function holds, so the ctid stays valid.
    select s.ctid, e.state, e.result, e.type, e.message, e.large
    from ended e
    cross join lateral (
      select s.ctid, s.child_id, s.pending from stepwell.step s where s.job_id = e.parent_id and s.key = e.key offset 0
    ) s
    where s.child_id = e.child_id and s.pending
  ), told as (
    update stepwell.step s
    set pending = false, saved_at = _now, seconds = greatest(extract(epoch from _now - s.saved_at), 0), large = f.large,
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
