-- Delete acts of people that are older than _keep seconds, of the oldest _limit. Returns how many. No role may delete
-- others: a worker's role may only ask for a year or more.
create or replace function stepwell.prune_audit(
  _keep double precision default 31536000,
  _limit integer default 10000
) returns integer
language plpgsql volatile security definer
as $$
declare
  _pruned integer;
begin
  delete from stepwell.audit a
  where a.id = any (array(
    select o.id from (select o.id, o.at from stepwell.audit o order by o.id limit _limit) o
    where o.at < stepwell.now() - least(greatest(_keep, 31536000), 3155760000) * interval '1 second'
  ));
  get diagnostics _pruned = row_count;
  return _pruned;
end
$$;
