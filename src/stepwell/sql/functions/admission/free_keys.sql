-- Free the unique keys of jobs that have ended. A key with a period stays taken until that is over, unless the job was
-- cancelled: then nobody wants its work any more, and a new enqueue is a new decision.
-- Only keys of live jobs, and those whose period lasts, are changed. Producers take over the others, and a job that
-- ends must not wait for their transactions.
create or replace function stepwell.free_keys(_ids uuid[], _keys text[], _cancelled boolean[], _now timestamptz)
returns void
language plpgsql volatile
as $$
declare
  _freed integer;
begin
  delete from stepwell.unique_key k
  using unnest(_ids, _keys, _cancelled) as u (id, key, cancelled)
  where k.key = any (_keys) and k.key = u.key and k.job_id = u.id
    and case
      when u.cancelled then k.live or k.expires_at > _now
      else k.live and (k.expires_at is null or k.expires_at <= _now)
    end;
  get diagnostics _freed = row_count;
  if _freed < cardinality(_ids) then
    update stepwell.unique_key k set live = false
    from unnest(_ids, _keys) as u (id, key)
    where k.key = any (_keys) and k.key = u.key and k.job_id = u.id and k.live;
  end if;
end
$$;
