-- Delete groups that have ended and expired. A group whose callback is live, or still kept, stays as long as that.
-- Returns how many it deleted or kept longer.
create or replace function stepwell.prune_groups(_limit integer default 10000) returns integer
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _ids uuid[];
begin
  _ids := array(
    select g.id from stepwell.job_group g
    where g.finished_at is not null and g.expires_at <= _now
    order by g.expires_at
    limit _limit
    for update skip locked
  );
  update stepwell.job_group g
  set expires_at = coalesce(
    (select h.expires_at from stepwell.history h where h.id = g.then_id and h.expires_at > _now limit 1),
    case
      when (select true from stepwell.job j where j.id = g.then_id limit 1) then _now + interval '1 hour'
      else g.expires_at
    end
  )
  where g.id = any (_ids);
  delete from stepwell.job_group g where g.id = any (_ids) and g.expires_at <= _now;
  return cardinality(_ids);
end
$$;
