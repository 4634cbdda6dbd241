-- Bulk operations, the newest first: all, those that run, or one; those before _before, at most _limit. next: pass it as
-- _before to continue; null: there are no older ones. workers is the number of workers that are alive: they work them
-- off.
create or replace function stepwell.dashboard_bulks(
  _id uuid default null,
  _running boolean default false,
  _limit integer default 50,
  _before uuid default null
) returns json
language plpgsql stable security definer
as $$
declare
  _page integer := least(greatest(coalesce(_limit, 50), 1), 500);
  _ids uuid[];
begin
  _ids := array(
    select b.id from stepwell.bulk b
    where (_id is null or b.id = _id) and (not _running or b.state = 'running')
      and b.id < coalesce(_before, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    order by b.id desc
    limit _page + 1
  );
  return json_build_object(
    'bulks', coalesce(
      (
        select json_agg(
          json_build_object(
            'id', b.id, 'act', b.act, 'state', b.state, 'filter', b.filter, 'options', b.options,
            'expected', b.expected, 'asked_by', b.asked_by, 'as_of', b.as_of, 'started_at', b.started_at,
            'finished_at', b.finished_at, 'worked_at', b.worked_at, 'looked', b.looked, 'done', b.done,
            'skipped', b.skipped, 'failed', b.failed, 'became', b.became, 'error', b.error,
            -- Work in the future was done before the clock was set back, and none since: so the distance is shown.
            'idle', case when b.state = 'running' then
              abs(extract(epoch from clock_timestamp() - coalesce(b.worked_at, b.started_at)))::double precision
            end
          )
          order by b.id desc
        )
        from stepwell.bulk b
        where b.id = any (_ids[:_page])
      ),
      '[]'
    ),
    'next', case when cardinality(_ids) > _page then _ids[_page] end,
    'workers', (
      select count(*) from (select from stepwell.worker w where w.lease_until > stepwell.now() limit 1000) w
    ),
    'now', stepwell.now()
  );
end
$$;
