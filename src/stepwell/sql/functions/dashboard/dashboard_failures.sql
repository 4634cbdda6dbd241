-- A page of groups of failures, as stepwell.list_failures lists them, and how many groups are in each state, of one
-- task or of all, up to 10,000. A resolved group with a later failure that is yet to be added counts as open, as it
-- does in the list.
create or replace function stepwell.dashboard_failures(
  _state text default null,
  _task text default null,
  _sort text default 'last',
  _after uuid default null,
  _limit integer default 50
) returns json
language plpgsql stable security definer
as $$
declare
  _most integer := least(greatest(coalesce(_limit, 50), 1), 200);
begin
  return (
    with pending as materialized (
      select t.fingerprint, max(t.at) as last_at
      from (select y.fingerprint, y.at from stepwell.failure_tally y order by y.id limit 10000) t
      group by t.fingerprint
    ), page as materialized (
      select row_number() over () as n, l.* from stepwell.list_failures(_state, _task, _sort, _after, _most + 1) l
    )
    select json_build_object(
      'groups', coalesce(
        (
          select json_agg(
            json_build_object(
              'id', p.fingerprint, 'task', p.task, 'type', left(p.type, 300), 'frame', p.frame, 'state', p.state,
              'state_at', p.state_at, 'reopened', p.reopened, 'reopened_at', p.reopened_at, 'first_at', p.first_at,
              'last_at', p.last_at, 'count', p.count, 'hours', p.hours, 'message', left(p.message, 300),
              'job_id', p.job_id
            )
            order by p.n
          )
          from page p where p.n <= _most
        ),
        '[]'
      ),
      'next', (select p.fingerprint from page p where p.n = _most and exists (select from page q where q.n > _most)),
      'states', (
        select json_build_object(
          'open', count(*) filter (where c.state = 'open'), 'resolved', count(*) filter (where c.state = 'resolved'),
          'ignored', count(*) filter (where c.state = 'ignored')
        )
        from (
          select case when g.state = 'resolved' and p.last_at > g.state_at then 'open' else g.state end as state
          from (select o.* from stepwell.failure_group o where _task is null or o.task = _task limit 10000) g
          left join pending p on p.fingerprint = g.fingerprint
        ) c
      )
    )
  );
end
$$;
